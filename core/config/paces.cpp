#include "core/config/paces.h"

#include "core/config/catalogue.h"
#include "core/config/internal/loaders.h"

namespace stepcast::config {
namespace {

constexpr double kMostFactor = 1e3;
constexpr std::int64_t kMostMeasured = 1'000'000;

}  // namespace

EfficiencyTable read_efficiencies(const Source& source) {
  const Document document = parse_document(source);
  const Value root = Value::root_of(document);
  root.keys({"source", "groups"});
  EfficiencyTable table;
  table.source = root.at("source", "command and tables it was made from").text("a text");
  for (const Value& item : root.at("groups", "a list").items("a list of measured groups")) {
    item.keys({"device", "framework", "family", "factor", "low", "high", "rows", "sources"});
    EfficiencyGroup group;
    for (const auto& [key, into] : {std::pair{"device", &group.device},
                                    {"framework", &group.framework},
                                    {"family", &group.family}}) {
      if (const auto v = item.find(key)) {
        *into = v->name();
      }
    }
    for (const auto& [key, into] :
         {std::pair{"factor", &group.factor}, {"low", &group.low}, {"high", &group.high}}) {
      *into = item.at(key, "measured over simulated step").number(1 / kMostFactor, kMostFactor);
    }
    group.rows = item.at("rows", "how many steps").integer(1, kMostMeasured);
    group.sources = item.at("sources", "how many publications").integer(1, kMostMeasured);
    table.groups.push_back(std::move(group));
  }
  return table;
}

EfficiencyTable load_efficiencies(const Library& library) {
  return read_once<EfficiencyTable>(library, "paces", [&] {
    return read_efficiencies(file_source(library.root / "models" / "stacks" / "paces.json"));
  });
}

std::string efficiencies_to_json(const EfficiencyTable& table) {
  OrderedJson j;
  j["source"] = table.source;
  j["groups"] = OrderedJson::array();
  for (const EfficiencyGroup& g : table.groups) {
    OrderedJson group;
    for (const auto& [key, value] :
         {std::pair{"device", &g.device}, {"framework", &g.framework}, {"family", &g.family}}) {
      if (!value->empty()) {
        group[key] = *value;
      }
    }
    group["factor"] = g.factor;
    group["low"] = g.low;
    group["high"] = g.high;
    group["rows"] = g.rows;
    group["sources"] = g.sources;
    j["groups"].push_back(std::move(group));
  }
  return pretty(j, 0) + "\n";
}

}  // namespace stepcast::config
