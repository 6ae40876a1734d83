#include "traces/pytorch_et/pytorch_et_reader.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "traces/events/host_calls.h"
#include "traces/events/rank_builder.h"
#include "traces/input/internal/json_stream.h"
#include "traces/input/wire.h"
#include "traces/kineto/internal/decimal.h"

namespace stepcast::traces {
namespace {

using internal::bare;
using internal::integer_of;
using simdjson::error_code;
using simdjson::SUCCESS;
using simdjson::ondemand::object;
using simdjson::ondemand::value;

/// One node as it stands in the file; views point into the window.
struct RawNode {
  std::optional<std::int64_t> id;
  std::int64_t parent = -1, record_function = -1, sequence = -1, scope = 0, thread = 0,
               forward_thread = -1;
  std::string_view name, inputs, shapes, types, outputs, output_shapes, output_types, schema;
  std::string_view collective, dtype, group_name, group_description;
  std::int64_t elements_in = -1, elements_out = -1, group_size = 0;
};

error_code text_of(value& v, std::string_view& to) {
  if (*v.raw_json_token().data() == '[') {
    simdjson::ondemand::array list;
    if (const error_code error = v.get_array().get(list); error != SUCCESS) {
      return error;
    }
    const error_code error = list.raw_json().get(to);
    to = bare(to);
    return error;
  }
  to = bare(v.raw_json_token());
  return SUCCESS;
}

/// Calls use(key, value) for each field.
template <typename Use>
error_code for_each_field(object& fields, Use&& use) {
  for (auto item : fields) {
    simdjson::ondemand::field field;
    if (const error_code error = std::move(item).get(field); error != SUCCESS) {
      return error;
    }
    const char* const raw = field.key().raw();
    const char* const end = static_cast<const char*>(std::memchr(raw, '"', 64));
    const std::string_view key(raw, end == nullptr ? 0 : static_cast<std::size_t>(end - raw));
    if (const error_code error = use(key, field.value()); error != SUCCESS) {
      return error;
    }
  }
  return SUCCESS;
}

/// A field of the node, or an attribute of that name: generations differ in where they put them.
error_code set_field(std::string_view key, value& v, RawNode& node) {
  const std::pair<std::string_view, std::int64_t*> numbers[] = {
      {"parent", &node.parent},
      {"ctrl_deps", &node.parent},
      {"rf_id", &node.record_function},
      {"seq_id", &node.sequence},
      {"scope", &node.scope},
      {"tid", &node.thread},
      {"fw_tid", &node.forward_thread},
      {"in_msg_nelems", &node.elements_in},
      {"out_msg_nelems", &node.elements_out},
      {"pg_size", &node.group_size},
      {"group_size", &node.group_size},
  };
  for (const auto& [name, number] : numbers) {
    if (name == key) {
      *number = integer_of(v.raw_json_token()).value_or(*number);
      return SUCCESS;
    }
  }
  const std::pair<std::string_view, std::string_view*> texts[] = {
      {"name", &node.name},
      {"input_shapes", &node.shapes},
      {"input_types", &node.types},
      {"output_shapes", &node.output_shapes},
      {"output_types", &node.output_types},
      {"op_schema", &node.schema},
      {"collective_name", &node.collective},
      {"dtype", &node.dtype},
      {"pg_name", &node.group_name},
      {"pg_desc", &node.group_description},
  };
  for (const auto& [name, text] : texts) {
    if (name == key) {
      return text_of(v, *text);
    }
  }
  if (key == "id") {
    node.id = integer_of(v.raw_json_token());
  }
  return SUCCESS;
}

error_code set_operands(value& v, std::string_view& values, std::string_view& shapes,
                        std::string_view& types) {
  if (*v.raw_json_token().data() != '{') {  // 1.0.1
    return text_of(v, values);
  }
  object parts;
  if (const error_code error = v.get_object().get(parts); error != SUCCESS) {
    return error;
  }
  return for_each_field(parts, [&](std::string_view key, value& part) {
    if (key == "values") {
      return text_of(part, values);
    }
    if (key == "shapes") {
      return text_of(part, shapes);
    }
    return key == "types" ? text_of(part, types) : SUCCESS;
  });
}

error_code set_attributes(value& v, RawNode& node) {
  simdjson::ondemand::array list;
  if (const error_code error = v.get_array().get(list); error != SUCCESS) {
    return error;
  }
  for (auto item : list) {
    object attribute;
    if (const error_code error = std::move(item).get_object().get(attribute); error != SUCCESS) {
      return error;
    }
    std::string_view name;
    const error_code error = for_each_field(attribute, [&](std::string_view key, value& part) {
      if (key == "name") {
        name = bare(part.raw_json_token());
      }
      const bool known = key == "value" && name != "id" && name != "name" && name != "parent";
      return known ? set_field(name, part, node) : SUCCESS;
    });
    if (error != SUCCESS) {
      return error;
    }
  }
  return SUCCESS;
}

error_code parse_node(object& fields, RawNode& node) {
  return for_each_field(fields, [&node](std::string_view key, value& v) {
    if (key == "inputs") {
      return set_operands(v, node.inputs, node.shapes, node.types);
    }
    if (key == "outputs") {
      return set_operands(v, node.outputs, node.output_shapes, node.output_types);
    }
    return key == "attrs" ? set_attributes(v, node) : set_field(key, v, node);
  });
}

/// Outputs and signature of a node, as Chakra spells them.
std::string chakra_fields(const RawNode& n) {
  std::string fields, outputs, schema;
  if (!n.outputs.empty()) {
    internal::put_bytes(outputs, 1, n.outputs);
    internal::put_bytes(outputs, 2, n.output_shapes);
    internal::put_bytes(outputs, 3, n.output_types);
    internal::put_bytes(fields, 9, outputs);
  }
  if (!n.schema.empty()) {
    constexpr std::uint32_t kStringValue = 29;
    internal::put_bytes(schema, 1, "op_schema");
    internal::put_bytes(schema, kStringValue, n.schema);
    internal::put_bytes(fields, 10, schema);
  }
  return fields;
}

/// The ids of the tensors in a list of values: [tensor, storage, offset, elements, bytes, "device"]
/// at any depth.
std::vector<std::int64_t> tensors_in(std::string_view values) {
  std::vector<std::int64_t> ids;
  for (std::size_t at = values.find('['); at != std::string_view::npos;
       at = values.find('[', at + 1)) {
    const std::size_t close = values.find_first_of("[]", at + 1);
    const std::string_view list =
        values.substr(at + 1, close == std::string_view::npos ? 0 : close - at - 1);
    if (std::count(list.begin(), list.end(), ',') == 5 &&
        list.find('"') != std::string_view::npos) {
      if (const auto id = integer_of(list.substr(0, list.find(',')))) {
        ids.push_back(*id);
      }
    }
  }
  return ids;
}

class PytorchRank {
 public:
  PytorchRank(Input& input, Names& names)
      : input_(input), names_(names), builder_(names, input.label()) {
    builder_.rank().rank = -1;
    builder_.rank().timing = Timing::kNone;
  }

  void member(const std::string& key, std::string_view text) {
    const std::string value(bare(text));
    if (key == "schema" && !value.starts_with("1.0.") && !value.starts_with("1.1.")) {
      throw InputError(input_.label() + ": schema",
                       fmt::format("found '{}'; expected an execution trace 1.0.1 to 1.1.1",
                                   value.substr(0, 40)));
    }
    if (key == "pid") {
      process_ = integer_of(text).value_or(0);
    }
    if (!text.starts_with('{') && !text.starts_with('[')) {
      builder_.rank().metadata[key] = value;
    }
  }

  void node(const RawNode& n, std::uint64_t offset) {
    if (!n.id) {
      input_.fail(offset, "a node without an id; expected a whole number");
    }
    const std::string_view type = n.dtype.empty() ? n.types : n.dtype;
    OpInfo op{.shapes = text(n.shapes),
              .types = text(n.types),
              .inputs = text(n.inputs),
              .sequence = n.sequence,
              .record_function = n.record_function,
              .forward_thread = n.forward_thread};
    if (!n.collective.empty() || n.name.starts_with("nccl:")) {
      op.collective = collective(n, type);
    }
    if (n.name.find("process_group:init") != std::string_view::npos) {
      groups(n.inputs);
    }
    RankRecording& rank = builder_.rank();
    rank.ops.push_back(op);
    NewEvent event;
    event.name = names_.intern(unescaped(n.name));
    constexpr std::int64_t kUserScope = 7;
    event.category = n.scope == kUserScope ? EventCategory::kUserRange : EventCategory::kCpuOp;
    event.lane = builder_.host_lane(process_, n.thread);
    event.external = *n.id;
    event.detail = static_cast<std::int32_t>(rank.ops.size() - 1);
    const EventId added = builder_.add(event);
    if (std::string fields = chakra_fields(n); !fields.empty()) {
      rank.node_fields[*n.id] = std::move(fields);
    }
    if (n.parent >= 0 && n.parent != *n.id) {
      parents_.emplace_back(added, n.parent);
    }
    tensors_.push_back({*n.id, added, tensors_in(n.inputs), tensors_in(n.outputs)});
  }

  RankRecording finish() && {
    RankRecording& rank = builder_.rank();
    rank.records["node"] = tensors_.size();
    std::sort(tensors_.begin(), tensors_.end(),
              [](const Tensors& a, const Tensors& b) { return a.node < b.node; });
    // The root's own parent is a number that no node has: it is the root, not an oddity.
    for (const auto& [event, parent] : parents_) {
      const bool root = !tensors_.empty() && parent < tensors_.front().node;
      if (!root) {
        builder_.depends(event, parent, Dependencies::Kind::kControl);
      }
    }
    std::unordered_map<std::int64_t, std::int64_t> producer;
    for (const Tensors& t : tensors_) {
      for (const std::int64_t id : t.inputs) {
        if (const auto found = producer.find(id); found != producer.end()) {
          builder_.depends(t.event, found->second, Dependencies::Kind::kData);
        }
      }
      for (const std::int64_t id : t.outputs) {
        producer[id] = t.node;
      }
    }
    return std::move(builder_).finish();
  }

 private:
  struct Tensors {
    std::int64_t node;
    EventId event;
    std::vector<std::int64_t> inputs, outputs;
  };

  NameId text(std::string_view t) { return t.empty() ? kNoName : names_.intern(t); }

  std::string unescaped(std::string_view t) {
    if (t.find('\\') == std::string_view::npos) {
      return std::string(t);
    }
    const auto parsed = nlohmann::json::parse('"' + std::string(t) + '"', nullptr, false);
    return parsed.is_string() ? parsed.get<std::string>() : std::string(t);
  }

  std::int32_t collective(const RawNode& n, std::string_view types) {
    CollectiveInfo info;
    const std::string_view said = n.collective.empty() ? n.name : n.collective;
    info.name = names_.intern(said);
    info.kind = collective_kind_of(said).value_or(OpKind::kCount);
    info.elements_in = n.elements_in;
    info.elements_out = n.elements_out;
    if (n.collective.empty()) {
      info.elements_in = 0;
      for (const auto& shape : shapes_of(n.shapes)) {
        std::int64_t product = shape.empty() ? 0 : 1;
        for (const std::int64_t d : shape) {
          product = d < 0 || __builtin_mul_overflow(product, d, &product) ? 0 : product;
        }
        info.elements_in =
            info.elements_in > INT64_MAX - product ? INT64_MAX : info.elements_in + product;
      }
    }
    // "["Tensor(float)"]" or "Float".
    std::string type(types.substr(0, types.find(')')));
    type.erase(0, type.find('(') == std::string::npos ? 0 : type.rfind('(') + 1);
    if (const auto bytes = element_bytes_of(type)) {
      info.dtype = names_.intern(type);
      const std::int64_t elements = std::max(info.elements_in, info.elements_out);
      info.bytes = elements >= 0 && elements < INT64_MAX / *bytes ? elements * *bytes : -1;
    }
    if (!n.group_name.empty()) {
      info.group = builder_.group(n.group_name);
      Group& g = builder_.rank().groups[static_cast<std::size_t>(info.group)];
      g.size = std::in_range<std::int32_t>(n.group_size) ? static_cast<std::int32_t>(n.group_size)
                                                         : g.size;
      g.description = std::string(n.group_description);
    }
    RankRecording& rank = builder_.rank();
    rank.collectives.push_back(std::move(info));
    return static_cast<std::int32_t>(rank.collectives.size() - 1);
  }

  /// The one input of "## process_group:init ##": a text that holds a JSON list of groups.
  void groups(std::string_view inputs) {
    using nlohmann::json;
    const json outer = json::parse(inputs, nullptr, false);
    if (!outer.is_array() || outer.empty() || !outer[0].is_string()) {
      return;
    }
    const json list = json::parse(outer[0].get_ref<const std::string&>(), nullptr, false);
    if (!list.is_array()) {
      return;
    }
    for (const json& g : list) {
      if (!g.is_object() || !g.contains("pg_name") || !g["pg_name"].is_string()) {
        continue;
      }
      Group& group = builder_.rank().groups[static_cast<std::size_t>(
          builder_.group(g["pg_name"].get_ref<const std::string&>()))];
      if (g.contains("group_size") && g["group_size"].is_number_integer()) {
        group.size = static_cast<std::int32_t>(g["group_size"].get<std::int64_t>());
      }
    }
  }

  Input& input_;
  Names& names_;
  RankBuilder builder_;
  std::int64_t process_ = 0;
  std::vector<std::pair<EventId, std::int64_t>> parents_;
  std::vector<Tensors> tensors_;
};

}  // namespace

RankRecording read_pytorch_et(Input& input, Names& names) {
  internal::JsonStream json(input);
  PytorchRank rank(input, names);
  json.expect('{', "an execution trace");
  bool found = false;
  while (json.next() != '}') {
    const std::string key = json.key();
    json.expect(':', "an execution trace");
    if (key == "nodes") {
      found = true;
      json.list([&rank](object& item, std::uint64_t offset) {
        RawNode node;
        const error_code error = parse_node(item, node);
        if (error == SUCCESS) {
          rank.node(node, offset);
        }
        return error;
      });
    } else {
      rank.member(key, json.value());
    }
    if (json.next() != '}') {
      json.expect(',', "an execution trace");
    }
  }
  json.expect('}', "an execution trace");
  if (!found) {
    json.fail(json.offset(), "has no nodes; expected an execution trace");
  }
  return std::move(rank).finish();
}

}  // namespace stepcast::traces
