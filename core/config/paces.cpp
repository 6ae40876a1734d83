#include "core/config/paces.h"

#include <algorithm>

#include "core/config/catalogue.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

constexpr double kMostFactor = 1e3;
constexpr double kMostWidth = 7;  // ln kMostFactor
constexpr std::int64_t kMostMeasured = 1'000'000;

/// Keys of a group and the members they are read into.
constexpr std::pair<const char*, std::string EfficiencyKeys::*> kKeys[] = {
    {"generation", &EfficiencyKeys::generation},
    {"device", &EfficiencyKeys::device},
    {"framework", &EfficiencyKeys::framework},
    {"family", &EfficiencyKeys::family}};

EfficiencyKeys keys_from(const Value& item) {
  EfficiencyKeys keys;
  for (const auto& [key, into] : kKeys) {
    if (const auto v = item.find(key)) {
      keys.*into = v->name();
    }
  }
  return keys;
}

std::vector<std::pair<std::string, EfficiencyScope>> scope_names() {
  std::vector<std::pair<std::string, EfficiencyScope>> names;
  for (const EfficiencyScope scope : {EfficiencyScope::kAll, EfficiencyScope::kGeneration,
                                      EfficiencyScope::kFramework, EfficiencyScope::kDevice}) {
    names.emplace_back(name_of(scope), scope);
  }
  return names;
}

OrderedJson keys_json(const EfficiencyKeys& keys) {
  OrderedJson j = OrderedJson::object();
  for (const auto& [key, value] : kKeys) {
    if (!(keys.*value).empty()) {
      j[key] = keys.*value;
    }
  }
  return j;
}

std::map<std::string, std::vector<std::string>> lists_from(const Value& v) {
  std::map<std::string, std::vector<std::string>> lists;
  for (const auto& [name, list] : v.members()) {
    for (const Value& item : list.items("a list of names", 1)) {
      lists[name].push_back(item.name());
    }
  }
  return lists;
}

}  // namespace

namespace {

EfficiencyTable table_from(const Value& root) {
  root.keys({"source", "scatter", "groups", "spreads"});
  EfficiencyTable table;
  table.source = root.at("source", "command and tables it was made from").text("a text");
  table.scatter = root.at("scatter", "a standard deviation").number(0, kMostWidth);
  for (const Value& item : root.at("groups", "a list").items("a list of measured groups")) {
    item.keys(
        {"generation", "device", "framework", "family", "factor", "error", "rows", "sources"});
    table.groups.push_back(
        {.of = keys_from(item),
         .factor =
             item.at("factor", "measured over simulated step").number(1 / kMostFactor, kMostFactor),
         .error = item.at("error", "the median of its rows").number(0, kMostFactor),
         .rows = item.at("rows", "how many steps").integer(1, kMostMeasured),
         .sources = item.at("sources", "how many publications").integer(1, kMostMeasured)});
  }
  for (const Value& item : root.at("spreads", "a list").items("a list of intervals")) {
    item.keys({"scope", "generation", "family", "width", "sources"});
    const EfficiencyKeys keys = keys_from(item);
    table.spreads.push_back(
        {.scope = item.at("scope", "how narrow a group is").choice(scope_names()),
         .generation = keys.generation,
         .family = keys.family,
         .width = item.at("width", "half an interval of ln").number(0, kMostWidth),
         .sources = item.at("sources", "how many publications").integer(0, kMostMeasured)});
  }
  return table;
}

}  // namespace

EfficiencyTable read_efficiencies(const Source& source) {
  const Document document = parse_document(source);
  return table_from(Value::root_of(document));
}

std::optional<EfficiencyTable> load_recommender_efficiencies(const Library& library,
                                                             const std::string& framework) {
  using Tables = std::map<std::string, EfficiencyTable>;
  const auto tables = read_once<Tables>(library, "recommender_paces", [&] {
    const Document document =
        parse_document(file_source(library.root / "models" / "stacks" / "recommender_paces.json"));
    Tables by_framework;
    for (const auto& [name, table] : Value::root_of(document).members()) {
      by_framework.emplace(name, table_from(table));
    }
    return by_framework;
  });
  const auto found = tables.find(framework);
  return found == tables.end() ? std::nullopt : std::optional(found->second);
}

EfficiencyTable load_efficiencies(const Library& library) {
  return read_once<EfficiencyTable>(library, "paces", [&] {
    return read_efficiencies(file_source(library.root / "models" / "stacks" / "paces.json"));
  });
}

namespace {

OrderedJson table_json(const EfficiencyTable& table) {
  OrderedJson j;
  j["source"] = table.source;
  j["scatter"] = table.scatter;
  j["groups"] = OrderedJson::array();
  for (const EfficiencyGroup& g : table.groups) {
    OrderedJson group = keys_json(g.of);
    group["factor"] = g.factor;
    group["error"] = g.error;
    group["rows"] = g.rows;
    group["sources"] = g.sources;
    j["groups"].push_back(std::move(group));
  }
  j["spreads"] = OrderedJson::array();
  for (const EfficiencySpread& s : table.spreads) {
    OrderedJson spread{{"scope", name_of(s.scope)}};
    spread.update(keys_json({s.generation, {}, {}, s.family}));
    spread["width"] = s.width;
    spread["sources"] = s.sources;
    j["spreads"].push_back(std::move(spread));
  }
  return j;
}

}  // namespace

std::string efficiencies_to_json(const EfficiencyTable& table) {
  return pretty(table_json(table), 0) + "\n";
}

std::string efficiencies_to_json(const std::map<std::string, EfficiencyTable>& by_framework) {
  OrderedJson j = OrderedJson::object();
  for (const auto& [framework, table] : by_framework) {
    j[framework] = table_json(table);
  }
  return pretty(j, 0) + "\n";
}

std::string Origins::generation_of(std::string_view device) const {
  std::string best;
  std::size_t longest = 0;
  for (const auto& [generation, names] : generations) {
    for (const std::string& name : names) {
      if (name.size() > longest && device.starts_with(name)) {
        best = generation;
        longest = name.size();
      }
    }
  }
  return best;
}

std::string Origins::maker_of(std::string_view framework) const {
  for (const auto& [maker, names] : makers) {
    if (std::find(names.begin(), names.end(), framework) != names.end()) {
      return maker;
    }
  }
  return std::string(framework);
}

Origins load_origins(const Library& library) {
  return read_once<Origins>(library, "origins", [&] {
    const Document document =
        parse_document(file_source(library.root / "models" / "stacks" / "origins.json"));
    const Value root = Value::root_of(document);
    root.keys({"generations", "makers"});
    return Origins{lists_from(root.at("generations", "names of devices by generation")),
                   lists_from(root.at("makers", "frameworks by who makes them"))};
  });
}

}  // namespace stepcast::config
