#include "traces/kineto/internal/raw_event.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "traces/kineto/internal/decimal.h"

namespace stepcast::traces::internal {
namespace {

using simdjson::error_code;
using simdjson::SUCCESS;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

/// True when the text behind an opening quote is `word` and then the closing one. The window is
/// padded, so reading past a short key is safe.
template <std::size_t n>
bool is(const char* key, const char (&word)[n]) {
  return std::memcmp(key, word, n - 1) == 0 && key[n - 1] == '"';
}

std::int64_t whole(value& v, std::int64_t otherwise) {
  return integer_of(v.raw_json_token()).value_or(otherwise);
}

/// One argument of an event: finds the field of its key and sets it.
class Argument {
 public:
  Argument(const char* key, value& v, RawEvent& event) : key_(key), value_(v), e_(event) {}

  /// Most events have five to ten arguments and most keys differ in their first letter.
  error_code read() {
    switch (key_[0]) {
      case 'E':
      case 'e':
        known_ = number("External id", e_.external) || number("external id", e_.external) ||
                 number("event_id", e_.event_id);
        break;
      case 'A':
        known_ = number("Addr", e_.address);
        break;
      case 'B':
        known_ = number("Bytes", e_.bytes);
        break;
      case 'T':
        known_ = number("Total Allocated", e_.allocated) || number("Total Reserved", e_.reserved);
        break;
      case 'D':
        known_ = number("Device Type", e_.device_type) || number("Device Id", e_.device_id) ||
                 collective();
        break;
      case 'c':
        known_ = number("correlation", e_.correlation) || number("context", e_.context) ||
                 text("cuda_sync_kind", e_.sync_kind) || number("cuda_event_id", e_.event_id);
        break;
      case 's':
        known_ = number("stream", e_.stream) || number("shared memory", e_.launch.shared_memory);
        break;
      case 'n':
        known_ = text("name", e_.label);
        break;
      case 'r':
        known_ = number("registers per thread", e_.launch.registers);
        break;
      case 'b':
        known_ = number("bytes", e_.bytes) || three("block", e_.launch.block);
        break;
      case 'g':
        known_ = three("grid", e_.launch.grid);
        e_.has_launch = e_.has_launch || known_;
        break;
      case 't':
        known_ = number("toDevice", e_.peer_device) || number("to device", e_.peer_device);
        break;
      case 'w':
        known_ = number("wait_on_stream", e_.wait_stream) ||
                 number("wait_on_cuda_event_record_corr_id", e_.record_correlation) ||
                 number("wait_on_cuda_event_id", e_.event_id);
        break;
      case 'd':
        known_ = number("device", e_.device) || collective();
        break;
      default:
        known_ = op() || collective();
        break;
    }
    return error_;
  }

 private:
  bool op() {
    const bool known = text("Input Dims", e_.shapes) || text("Input type", e_.types) ||
                       text("Concrete Inputs", e_.inputs) ||
                       number("Sequence number", e_.sequence) ||
                       number("Record function id", e_.record_function) ||
                       number("Fwd thread id", e_.forward_thread);
    e_.has_op = e_.has_op || known;
    return known;
  }
  bool collective() {
    RawCollective& c = e_.collective;
    const bool known =
        text("Collective name", c.name) || text("dtype", c.dtype) ||
        number("In msg nelems", c.elements_in) || number("Out msg nelems", c.elements_out) ||
        text("In split size", c.split_in) || text("Out split size", c.split_out) ||
        number("Group size", c.group_size) || number("Seq", c.sequence) ||
        number("Src Rank", c.peer) || number("Dst Rank", c.peer) ||
        text("Comms Id", c.communicator) || text("Process Group Name", c.group_name) ||
        text("Process Group ID", c.group_name) ||
        text("Process Group Description", c.group_description) ||
        text("Process Group Ranks", c.group_ranks);
    e_.has_collective = e_.has_collective || known;
    return known;
  }

  template <std::size_t n, typename Number>
  bool number(const char (&word)[n], Number& to) {
    if (!is(key_, word)) {
      return false;
    }
    if constexpr (std::is_same_v<Number, std::optional<std::int64_t>>) {
      to = integer_of(value_.raw_json_token());
    } else {
      to = static_cast<Number>(whole(value_, to));
    }
    return true;
  }
  /// The text of a value of any kind; of a list, its JSON.
  template <std::size_t n>
  bool text(const char (&word)[n], std::string_view& to) {
    if (!is(key_, word)) {
      return false;
    }
    if (*value_.raw_json_token().data() != '[') {
      to = bare(value_.raw_json_token());
      return true;
    }
    simdjson::ondemand::array list;
    error_ = value_.get_array().get(list);
    if (error_ == SUCCESS) {
      error_ = list.raw_json().get(to);
    }
    return true;
  }
  /// Three numbers; a dialect that writes something else leaves them unknown.
  template <std::size_t n>
  bool three(const char (&word)[n], std::array<std::int32_t, 3>& to) {
    simdjson::ondemand::array list;
    if (!is(key_, word)) {
      return false;
    }
    if (value_.get_array().get(list) != SUCCESS) {
      return true;
    }
    std::size_t i = 0;
    for (auto item : list) {
      value part;
      if (error_ = std::move(item).get(part); error_ != SUCCESS) {
        break;
      }
      if (i < 3) {
        to[i++] = static_cast<std::int32_t>(whole(part, 0));
      }
    }
    return true;
  }

  const char* key_;
  value& value_;
  RawEvent& e_;
  error_code error_ = SUCCESS;
  bool known_ = false;
};

error_code arguments(value& v, RawEvent& e) {
  object list;
  if (*v.raw_json_token().data() != '{') {
    return SUCCESS;
  }
  if (const error_code error = v.get_object().get(list); error != SUCCESS) {
    return error;
  }
  for (auto item : list) {
    simdjson::ondemand::field field;
    if (error_code error = std::move(item).get(field); error != SUCCESS) {
      return error;
    }
    if (error_code error = Argument(field.key().raw(), field.value(), e).read(); error != SUCCESS) {
      return error;
    }
  }
  return SUCCESS;
}

}  // namespace

error_code parse_event(object& json, RawEvent& e) {
  for (auto item : json) {
    simdjson::ondemand::field field;
    if (error_code error = std::move(item).get(field); error != SUCCESS) {
      return error;
    }
    const char* const key = field.key().raw();
    value& v = field.value();
    if (is(key, "args")) {
      if (error_code error = arguments(v, e); error != SUCCESS) {
        return error;
      }
      continue;
    }
    const std::string_view token = v.raw_json_token();
    if (is(key, "ph")) {
      const std::string_view phase = bare(token);
      e.phase = phase.empty() ? '?' : phase[0];
      if (e.phase != 'X' && e.phase != 'M' && e.phase != 'B' && e.phase != 'E' && e.phase != 'i') {
        // Flows are a third of a trace: nothing of them is kept but their number.
        std::string_view rest;
        return json.raw_json().get(rest);
      }
    } else if (is(key, "cat")) {
      e.category = bare(token);
    } else if (is(key, "name")) {
      e.name = bare(token);
    } else if (is(key, "pid")) {
      e.process = bare(token);
    } else if (is(key, "tid")) {
      e.thread = bare(token);
    } else if (is(key, "ts")) {
      e.begin = token;
    } else if (is(key, "dur")) {
      e.duration = token;
    }
  }
  return SUCCESS;
}

}  // namespace stepcast::traces::internal
