#include "traces/kineto/kineto_reader.h"

#include "traces/input/internal/json_stream.h"
#include "traces/kineto/internal/kineto_rank.h"

namespace stepcast::traces {

RankRecording read_kineto(Input& input, Names& names) {
  internal::JsonStream json(input);
  internal::KinetoRank rank(input, names);
  const auto events = [&] {
    json.list<internal::RawEvent>(
        internal::parse_event,
        [&rank](internal::RawEvent& event, std::uint64_t offset) { rank.event(event, offset); });
  };
  if (json.next() == '[') {  // the list alone
    events();
  } else {
    bool found = false;
    json.members("a trace", [&](const std::string& key) {
      if (key != "traceEvents") {
        rank.member(key, json.value());
        return;
      }
      if (found) {
        json.fail(json.offset(), "traceEvents appears twice; expected one list");
      }
      found = true;
      events();
    });
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
