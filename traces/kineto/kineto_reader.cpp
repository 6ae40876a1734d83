#include "traces/kineto/kineto_reader.h"

#include "traces/input/internal/json_stream.h"
#include "traces/kineto/internal/kineto_rank.h"

namespace stepcast::traces {

RankRecording read_kineto(Input& input, Names& names) {
  internal::JsonStream json(input);
  internal::KinetoRank rank(input, names);
  const auto events = [&] {
    json.list([&rank](internal::object& item, std::uint64_t offset) {
      internal::RawEvent event;
      const simdjson::error_code error = internal::parse_event(item, event);
      if (error == simdjson::SUCCESS) {
        rank.event(event, offset);
      }
      return error;
    });
  };
  if (json.next() == '[') {  // the list alone
    events();
  } else {
    json.expect('{', "a trace");
    bool found = false;
    while (json.next() != '}') {
      const std::string key = json.key();
      json.expect(':', "a trace");
      if (key == "traceEvents") {
        if (found) {
          json.fail(json.offset(), "traceEvents appears twice; expected one list");
        }
        found = true;
        events();
      } else {
        rank.member(key, json.value());
      }
      if (json.next() != '}') {
        json.expect(',', "a trace");
      }
    }
    json.expect('}', "a trace");
    if (!found) {
      json.fail(json.offset(), "has no traceEvents; expected a Chrome trace");
    }
  }
  if (json.next() != '\0') {
    json.fail(json.offset(), "something follows the end of the trace");
  }
  if (json.repaired() > 0) {
    rank.repaired(json.repaired());
  }
  return std::move(rank).finish();
}

}  // namespace stepcast::traces
