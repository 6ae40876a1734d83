// Workloads of kind dlrm.
#include "core/config/internal/job_tables.h"
#include "core/config/internal/layer_loaders.h"

namespace stepcast::config {
namespace {

KeyTable interaction_table() {
  return {needed_fact("kind", choice_form(interaction_names()), "how vectors of features meet"),
          open_fact("layers", integer_form(1, 1000), "dcnv2: cross layers", "required by dcnv2"),
          open_fact("rank", integer_form(1, kWidest), "dcnv2: rank of a cross layer",
                    "required by dcnv2")};
}

Interaction interaction_from(const Value& v) {
  expect_keys(v, interaction_table());
  Interaction i;
  i.kind = v.at("kind", "dot, cat or dcnv2").choice(interaction_names());
  const bool cross = i.kind == InteractionKind::kDcnV2;
  for (const char* key : {"layers", "rank"}) {
    if (const auto k = v.find(key); k && !cross) {
      k->reject(fmt::format("found {}: only dcnv2 has {}; remove it", shown(k->json()), key));
    }
  }
  if (cross) {
    i.layers = v.at("layers", "the number of cross layers").integer(1, 1000);
    i.rank = v.at("rank", "the rank of a cross layer").integer(1, kWidest);
  }
  return i;
}

/// `dot` multiplies vectors of one width; the bottom output is one of them.
void check_interaction(const LayeredWorkload& w, const Value& v) {
  if (w.interaction.kind != InteractionKind::kDot) {
    return;
  }
  for (std::size_t i = 0; i < w.tables.size(); ++i) {
    if (w.tables[i].dim != w.bottom_mlp.back()) {
      throw InputError(
          v.where(fmt::format("tables[{}].dim", i)),
          fmt::format("{} differs from the last width of bottom_mlp = {}, and interaction dot "
                      "needs them equal; make them equal or use cat or dcnv2",
                      w.tables[i].dim, w.bottom_mlp.back()));
    }
  }
}

}  // namespace

const std::vector<std::pair<std::string, InteractionKind>>& interaction_names() {
  static const std::vector<std::pair<std::string, InteractionKind>> names{
      {"dot", InteractionKind::kDot},
      {"cat", InteractionKind::kCat},
      {"dcnv2", InteractionKind::kDcnV2}};
  return names;
}

KeyTable dlrm_table() {
  KeyTable table = kind_table("dlrm");
  const KeyTable halves = recommendation_table();
  table.insert(table.end(), halves.begin(), halves.begin() + 2);
  table.push_back(needed_fact("interaction", object_form(interaction_table()),
                              "how dense and sparse vectors meet"));
  table.insert(table.end(), halves.begin() + 2, halves.end());
  return table;
}

LayeredWorkload dlrm_from(const Value& v) {
  expect_keys(v, dlrm_table());
  LayeredWorkload w = recommendation_from(v);
  w.interaction =
      interaction_from(v.at("interaction", "{\"kind\": \"dot\"}, \"cat\" or \"dcnv2\""));
  check_interaction(w, v);
  return w;
}

void add_dlrm(OrderedJson& j, const LayeredWorkload& w) {
  j["dense_features"] = w.dense_features;
  j["bottom_mlp"] = w.bottom_mlp;
  j["interaction"]["kind"] = name_in(interaction_names(), w.interaction.kind);
  if (w.interaction.kind == InteractionKind::kDcnV2) {
    j["interaction"]["layers"] = w.interaction.layers;
    j["interaction"]["rank"] = w.interaction.rank;
  }
  j["top_mlp"] = w.top_mlp;
  add_tables(j, w);
}

}  // namespace stepcast::config
