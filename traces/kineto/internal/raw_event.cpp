#include "traces/kineto/internal/raw_event.h"

#include <cstring>

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

error_code three(value& v, std::array<std::int32_t, 3>& to) {
  simdjson::ondemand::array list;
  if (v.get_array().get(list) != SUCCESS) {
    return SUCCESS;  // a dialect that writes something else: not known
  }
  std::size_t i = 0;
  for (auto item : list) {
    value number;
    if (const error_code error = std::move(item).get(number); error != SUCCESS) {
      return error;
    }
    if (i < 3) {
      to[i++] = static_cast<std::int32_t>(whole(number, 0));
    }
  }
  return SUCCESS;
}

/// The text of a value of any kind.
error_code text_of(value& v, std::string_view& to) {
  const char first = *v.raw_json_token().data();
  if (first == '[') {
    simdjson::ondemand::array list;
    if (const error_code error = v.get_array().get(list); error != SUCCESS) {
      return error;
    }
    return list.raw_json().get(to);
  }
  to = bare(v.raw_json_token());
  return SUCCESS;
}

error_code collective_argument(const char* key, value& v, RawEvent& e, bool& known) {
  RawCollective& c = e.collective;
  known = true;
  const auto text = [&](std::string_view& to) {
    e.has_collective = true;
    return text_of(v, to);
  };
  const auto number = [&](std::int64_t& to) {
    e.has_collective = true;
    to = whole(v, to);
    return SUCCESS;
  };
  switch (key[0]) {
    case 'C':
      if (is(key, "Collective name")) return text(c.name);
      if (is(key, "Comms Id")) return text(c.communicator);
      break;
    case 'D':
      if (is(key, "Dst Rank")) return number(c.peer);
      break;
    case 'G':
      if (is(key, "Group size")) return number(c.group_size);
      break;
    case 'I':
      if (is(key, "In msg nelems")) return number(c.elements_in);
      if (is(key, "In split size")) return text(c.split_in);
      break;
    case 'O':
      if (is(key, "Out msg nelems")) return number(c.elements_out);
      if (is(key, "Out split size")) return text(c.split_out);
      break;
    case 'P':
      if (is(key, "Process Group Name") || is(key, "Process Group ID")) return text(c.group_name);
      if (is(key, "Process Group Description")) return text(c.group_description);
      if (is(key, "Process Group Ranks")) return text(c.group_ranks);
      break;
    case 'S':
      if (is(key, "Seq")) return number(c.sequence);
      if (is(key, "Src Rank")) return number(c.peer);
      break;
    case 'd':
      if (is(key, "dtype")) return text(c.dtype);
      break;
    default:
      break;
  }
  known = false;
  return SUCCESS;
}

error_code argument(const char* key, value& v, RawEvent& e) {
  switch (key[0]) {
    case 'E':
    case 'e':
      if (is(key, "External id") || is(key, "external id")) e.external = whole(v, -1);
      if (is(key, "event_id")) e.event_id = whole(v, -1);
      return SUCCESS;
    case 'c':
      if (is(key, "correlation")) e.correlation = whole(v, 0);
      if (is(key, "context")) e.context = whole(v, -1);
      if (is(key, "cuda_sync_kind")) e.sync_kind = bare(v.raw_json_token());
      if (is(key, "cuda_event_id")) e.event_id = whole(v, -1);
      return SUCCESS;
    case 'd':
      if (is(key, "device")) {
        e.device = integer_of(v.raw_json_token());
        return SUCCESS;
      }
      break;
    case 's':
      if (is(key, "stream")) e.stream = integer_of(v.raw_json_token());
      if (is(key, "shared memory"))
        e.launch.shared_memory = static_cast<std::int32_t>(whole(v, -1));
      return SUCCESS;
    case 'r':
      if (is(key, "registers per thread"))
        e.launch.registers = static_cast<std::int32_t>(whole(v, -1));
      return SUCCESS;
    case 'b':
      if (is(key, "bytes")) e.bytes = whole(v, -1);
      if (is(key, "block")) return three(v, e.launch.block);
      return SUCCESS;
    case 'g':
      if (is(key, "grid")) {
        e.has_launch = true;
        return three(v, e.launch.grid);
      }
      return SUCCESS;
    case 't':
      if (is(key, "toDevice") || is(key, "to device")) e.peer_device = whole(v, -1);
      return SUCCESS;
    case 'w':
      if (is(key, "wait_on_stream")) e.wait_stream = whole(v, -1);
      if (is(key, "wait_on_cuda_event_record_corr_id")) e.record_correlation = whole(v, -1);
      if (is(key, "wait_on_cuda_event_id")) e.event_id = whole(v, -1);
      return SUCCESS;
    case 'I':
      e.has_op = true;
      if (is(key, "Input Dims")) return text_of(v, e.shapes);
      if (is(key, "Input type")) return text_of(v, e.types);
      break;
    case 'C':
      if (is(key, "Concrete Inputs")) {
        e.has_op = true;
        return text_of(v, e.inputs);
      }
      break;
    case 'S':
      if (is(key, "Sequence number")) {
        e.has_op = true;
        e.sequence = whole(v, -1);
        return SUCCESS;
      }
      break;
    case 'R':
      if (is(key, "Record function id")) {
        e.has_op = true;
        e.record_function = whole(v, -1);
      }
      return SUCCESS;
    case 'F':
      if (is(key, "Fwd thread id")) {
        e.has_op = true;
        e.forward_thread = whole(v, -1);
      }
      return SUCCESS;
    default:
      break;
  }
  bool known = false;
  return collective_argument(key, v, e, known);
}

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
    if (error_code error = argument(field.key().raw(), field.value(), e); error != SUCCESS) {
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
      if (e.phase != 'X') {
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
