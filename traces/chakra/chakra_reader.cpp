#include "traces/chakra/chakra_reader.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "traces/chakra/internal/node.h"
#include "traces/input/internal/json_stream.h"
#include "traces/input/wire.h"
#include "traces/kineto/internal/decimal.h"

namespace stepcast::traces {
namespace {

using internal::ChakraNode;
using internal::WireField;
using internal::WireReader;

/// AttributeProto: a name and one value of many kinds; of those, numbers and texts.
struct Attribute {
  std::string_view name, text;
  std::int64_t number = 0;
  bool is_text = false;
};

Attribute attribute_of(const Input& input, const WireField& field) {
  Attribute a;
  WireReader reader(input, field.bytes, field.offset);
  WireField f;
  while (reader.next(f)) {
    // The scalar kinds have odd numbers from 3; floating point 3 and 5, zigzag 15 and 17.
    if (f.number == 1 && f.type == 2) {
      a.name = f.bytes;
    } else if ((f.number == 29 || f.number == 31) && f.type == 2) {
      a.text = f.bytes;
      a.is_text = true;
    } else if ((f.number == 15 || f.number == 17) && f.type == 0) {
      a.number = f.zigzag();
    } else if ((f.number == 3 || f.number == 5) && f.type != 2 && f.type != 0) {
      constexpr double kLargest = 9e18;
      const double real = f.real();  // may be no number at all
      a.number = real > -kLargest && real < kLargest ? static_cast<std::int64_t>(real) : 0;
    } else if (f.number >= 7 && f.number <= 27 && f.type != 2) {
      a.number = f.integer();
    }
  }
  return a;
}

/// False for one that nothing of a node holds.
bool set_attribute(ChakraNode& n, const Attribute& a) {
  const std::pair<std::string_view, std::int64_t*> numbers[] = {
      {"rf_id", &n.record_function}, {"seq_id", &n.sequence},      {"fw_tid", &n.forward_thread},
      {"comm_type", &n.comm_type},   {"comm_size", &n.comm_bytes}, {"comm_dst", &n.peer},
      {"comm_src", &n.peer},         {"root_rank", &n.peer},       {"process", &n.process},
      {"context", &n.context},       {"device", &n.device},        {"bytes", &n.bytes},
  };
  for (const auto& [name, number] : numbers) {
    if (name == a.name) {
      *number = a.number;
      return true;
    }
  }
  const std::pair<std::string_view, std::optional<std::int64_t>*> ours[] = {
      {"begin_ns", &n.begin_ns},       {"duration_ns", &n.duration_ns}, {"category", &n.category},
      {"correlation", &n.correlation}, {"external", &n.external},
  };
  for (const auto& [name, number] : ours) {
    if (name == a.name) {
      *number = a.number;
      return true;
    }
  }
  if (a.name == "tid") {
    n.thread = a.number;
  } else if (a.name == "stream") {
    n.stream = a.number;
  } else if (a.name == "is_cpu_op") {
    n.on_cpu = a.number != 0;
  } else if (a.name == "lane_name" && a.is_text) {
    n.lane_name = std::string(a.text);
  } else if (a.name == "pg_name" && a.is_text) {
    n.group = std::string(a.text);
  } else {
    return false;
  }
  return true;
}

void add_numbers(const Input& input, const WireField& field, std::vector<std::int64_t>& to) {
  if (field.type == 0) {
    to.push_back(field.integer());
    return;
  }
  WireReader packed(input, field.bytes, field.offset);
  std::uint64_t value = 0;
  while (packed.varint(value)) {
    to.push_back(static_cast<std::int64_t>(value));
  }
}

void set_operands(const Input& input, const WireField& field, ChakraNode& n) {
  WireReader reader(input, field.bytes, field.offset);
  WireField f;
  while (reader.next(f)) {
    if (f.type == 2) {
      std::string* const to[] = {nullptr, &n.values, &n.shapes, &n.types};
      if (f.number >= 1 && f.number <= 3) {
        *to[f.number] = std::string(f.bytes);
      }
    }
  }
}

ChakraNode node_of(const Input& input, const std::string& message, std::uint64_t offset) {
  ChakraNode n;
  WireReader reader(input, message, offset);
  WireField f;
  while (reader.next(f)) {
    switch (f.number) {
      case 1:
        n.id = f.integer();
        break;
      case 2:
        n.name = std::string(f.bytes);
        break;
      case 3:
        n.type =
            f.value <= 7 ? static_cast<internal::NodeType>(f.value) : internal::NodeType::kInvalid;
        break;
      case 4:
        add_numbers(input, f, n.control);
        break;
      case 5:
        add_numbers(input, f, n.data);
        break;
      case 6:
        n.begin_us = f.integer();
        break;
      case 7:
        n.duration_us = f.integer();
        break;
      case 8:
        set_operands(input, f, n);
        break;
      case 9:  // outputs
        internal::put_bytes(n.fields, f.number, f.bytes);
        break;
      case 10:
        if (!set_attribute(n, attribute_of(input, f))) {
          internal::put_bytes(n.fields, f.number, f.bytes);
        }
        break;
      default:
        break;
    }
  }
  return n;
}

void metadata_of(const Input& input, const std::string& message, std::uint64_t offset,
                 RankRecording& rank) {
  WireReader reader(input, message, offset);
  WireField f;
  while (reader.next(f)) {
    if (f.number == 1 && f.type == 2) {
      rank.metadata["version"] = std::string(f.bytes);
    } else if (f.number == 2 && f.type == 2) {
      const Attribute a = attribute_of(input, f);
      const bool small = !a.is_text && a.number >= 0 && a.number < INT32_MAX;
      if (small && a.name == "rank") {
        rank.rank = static_cast<std::int32_t>(a.number);
        continue;
      }
      if (small && a.name == "world_size") {
        rank.world_size = static_cast<std::int32_t>(a.number);
        continue;
      }
      rank.metadata[std::string(a.name)] =
          a.is_text ? std::string(a.text) : std::to_string(a.number);
    } else {
      input.fail(f.offset, fmt::format("found field {} in the metadata; expected a version and "
                                       "attributes: this is no Chakra trace",
                                       f.number));
    }
  }
}

}  // namespace

RankRecording read_chakra(Input& input, Names& names) {
  internal::MessageStream messages(input);
  internal::ChakraRank rank(input.label(), names);
  std::string message;
  if (!messages.next(message)) {
    input.fail(0, "the file is empty; expected a Chakra trace");
  }
  metadata_of(input, message, messages.offset(), rank.rank());
  while (messages.next(message)) {
    if (message.empty()) {  // where the reference reader stops
      if (!input.peek(1).empty()) {
        rank.rank().oddities.add(ParseWarning::kUnreadRecord, [&] {
          return fmt::format("{}: byte {}: more follows a message of no bytes, which ends a trace",
                             input.label(), messages.offset());
        });
      }
      break;
    }
    rank.node(node_of(input, message, messages.offset()));
  }
  return std::move(rank).finish();
}

RankRecording read_chakra_json(Input& input, Names& names) {
  using simdjson::SUCCESS;
  internal::JsonStream json(input);
  internal::ChakraRank rank(input.label(), names);
  json.expect('{', "a Chakra graph");
  while (json.next() != '}') {
    const std::string key = json.key();
    json.expect(':', "a Chakra graph");
    if (key == "workload_graph") {
      json.list([&](internal::object& item, std::uint64_t offset) {
        std::string_view text;
        if (const auto error = item.raw_json().get(text); error != SUCCESS) {
          return error;
        }
        const auto j = nlohmann::json::parse(text, nullptr, false);
        const auto whole = [&j](const char* name, std::int64_t otherwise) {
          const auto it = j.find(name);
          return it != j.end() && it->is_number_integer() ? it->get<std::int64_t>() : otherwise;
        };
        const auto list = [&j](const char* name) {
          std::vector<std::int64_t> numbers;
          if (const auto it = j.find(name); it != j.end() && it->is_array()) {
            for (const auto& n : *it) {
              numbers.push_back(n.is_number_integer() ? n.get<std::int64_t>() : -1);
            }
          }
          return numbers;
        };
        if (!j.is_object() || !j.contains("Id")) {
          input.fail(offset, "a node without Id; expected a Chakra node");
        }
        ChakraNode n;
        n.id = whole("Id", 0);
        n.name = j.contains("Name") && j["Name"].is_string() ? j["Name"].get<std::string>() : "";
        const std::int64_t type = whole("NodeType", 0);
        n.type = static_cast<internal::NodeType>(type >= 0 && type <= 7 ? type : 0);
        n.control = list("ctrlDeps");
        n.data = list("data_deps");
        n.duration_us = whole("runtime", 0);
        n.comm_type = whole("comm_type", -1);
        n.comm_bytes = whole("comm_size", -1);
        n.on_cpu = j.contains("is_cpu_op") && j["is_cpu_op"] == true;
        rank.node(n);
        return SUCCESS;
      });
    } else {
      rank.rank().metadata[key] = std::string(internal::bare(json.value()));
    }
    if (json.next() != '}') {
      json.expect(',', "a Chakra graph");
    }
  }
  json.expect('}', "a Chakra graph");
  return std::move(rank).finish();
}

}  // namespace stepcast::traces
