#include "core/config/internal/key_forms.h"

#include "core/config/internal/loaders.h"

namespace stepcast::config {

const Scope kTransformers{"transformers", is_transformer};
const Scope kWithTables{"workloads with tables", has_tables};
const Scope kWithoutTables{"workloads without tables",
                           [](const Job& job) { return !has_tables(job); }};

OrderedJson integer_form(std::int64_t low, std::int64_t high) {
  return {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
}
OrderedJson number_form(double low, double high) {
  return {{"type", "number"}, {"minimum", plain(low)}, {"maximum", plain(high)}};
}
OrderedJson boolean_form() { return {{"type", "boolean"}}; }
OrderedJson text_form(std::string_view what) { return {{"type", "string"}, {"title", what}}; }

OrderedJson amount_form(std::string_view example) {
  const bool bytes = example.ends_with("B") || example.ends_with("B/s");
  const std::string_view units = example.ends_with("FLOP/s") ? "[kMGTPE]?FLOP/s"
                                 : example.ends_with("B/s")  ? "([kMGTP]|[KMGTP]i)?B/s"
                                 : bytes                     ? "([kMGTP]|[KMGTP]i)?B"
                                                             : "(ps|ns|us|ms|s|min|h)";
  return {{"type", "string"},
          {"pattern", fmt::format(R"(^[0-9.]+(e[+-]?[0-9]+)? *{}$)", units)},
          {"examples", {example}}};
}

OrderedJson choice_form(const std::vector<std::string>& names) { return {{"enum", names}}; }

OrderedJson list_form(OrderedJson item, std::size_t least, std::size_t most) {
  OrderedJson form{{"type", "array"}, {"items", std::move(item)}};
  if (least > 0) {
    form["minItems"] = least;
  }
  if (most < SIZE_MAX) {
    form["maxItems"] = most;
  }
  return form;
}

OrderedJson any_form(std::vector<OrderedJson> forms) { return {{"anyOf", std::move(forms)}}; }

OrderedJson named_form(std::string_view definition) {
  return {{"$ref", fmt::format("#/$defs/{}", definition)}};
}

OrderedJson map_form(OrderedJson value) {
  return {{"type", "object"}, {"additionalProperties", std::move(value)}};
}

OrderedJson object_form(const KeyTable& keys) {
  OrderedJson form{{"type", "object"}, {"properties", OrderedJson::object()}};
  OrderedJson needed = OrderedJson::array();
  for (const KeyFacts& key : keys) {
    OrderedJson& property = form["properties"][std::string(key.name)];
    property["description"] = key.help;
    if (!key.usual.is_null()) {
      property["default"] = key.usual;
    } else {
      property["$comment"] = key.needed.empty() ? key.otherwise : "required";
    }
    if (key.scope != nullptr) {
      property["x-applies-to"] = key.scope->text;
    }
    property.update(key.form);
    if (!key.needed.empty()) {
      needed.push_back(key.name);
    }
  }
  if (!needed.empty()) {
    form["required"] = std::move(needed);
  }
  form["additionalProperties"] = false;
  return form;
}

void expect_keys(const Value& v, const KeyTable& keys) {
  std::vector<std::string_view> names;
  for (const KeyFacts& key : keys) {
    names.push_back(key.name);
  }
  v.keys(names);
}

}  // namespace stepcast::config
