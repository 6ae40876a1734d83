// Workloads: what all kinds share.
#include "core/config/internal/job_tables.h"
#include "core/config/internal/layer_loaders.h"

namespace stepcast::config {
namespace {

KeyTable default_batch_table(bool transformer) {
  KeyTable table = batch_table();
  for (KeyFacts& key : table) {
    key.needed = kNeeded;
  }
  if (!transformer) {
    std::erase_if(table, [](const KeyFacts& key) { return key.scope != nullptr; });
  }
  return table;
}

Batch default_batch_from(const Value& v, bool transformer) {
  Batch b;
  expect_keys(v, default_batch_table(transformer));
  if (transformer) {
    b.micro = v.at("micro", "sequences per micro-batch").integer(1, kLargestBatch);
    b.sequence = v.at("sequence", "tokens per sequence").integer(1, 1 << 26);
  }
  b.global = v.at("global", "samples per optimizer step").integer(1, kLargestBatch);
  return b;
}

}  // namespace

std::vector<std::int64_t> widths_from(const Value& v) {
  std::vector<std::int64_t> all;
  for (const Value& w :
       v.items("a list of at least one output width, such as [512, 256, 128]", 1)) {
    all.push_back(w.integer(1, kWidest));
  }
  if (all.size() > 1000) {
    v.fail("at most 1000 layers");
  }
  return all;
}

OrderedJson widths_form() { return list_form(integer_form(1, kWidest), 1, 1000); }

KeyTable kind_table(std::string_view kind) {
  KeyTable table{needed_fact("kind", choice_form({std::string(kind)}), "of the workload"),
                 needed_fact("name", text_form("a name"), "of the model"),
                 open_fact("source", text_form("where the facts come from"), "of the facts"),
                 open_fact("default_batch", object_form(default_batch_table(kind == "transformer")),
                           "the batch of jobs that name none")};
  if (kind != "transformer") {  // which reads it among its own keys
    table.push_back(open_fact("approximated", list_form(text_form("a phrase")),
                              "what the description leaves out; commands repeat it"));
  }
  return table;
}

KeyTable recommendation_table() {
  return {
      needed_fact("dense_features", integer_form(1, kWidest), "dense features of a sample"),
      needed_fact("bottom_mlp", widths_form(), "output widths of what reads dense features"),
      needed_fact("top_mlp", widths_form(), "output widths of what makes the logit: the last is 1"),
      needed_fact("tables", tables_form(1), "embedding tables")};
}

std::vector<std::pair<std::string, KeyTable>> workload_tables() {
  return {{"transformer", transformer_table()},
          {"dlrm", dlrm_table()},
          {"wukong", wukong_table()},
          {"dhen", dhen_table()},
          {"dit", dit_table()},
          {"rnn_ctc", rnn_ctc_table()},
          {"graph", graph_table()}};
}

Workload workload_from(const Value& v) {
  if (!v.is_object()) {
    v.fail("a workload {\"kind\": ..., ...}");
  }
  const Value kind = v.at("kind", "transformer, dlrm, wukong, dhen, dit, rnn_ctc or graph");
  using Reader = LayeredWorkload (*)(const Value&);
  const auto reader = kind.choice<Reader>({{"transformer", nullptr},
                                           {"dlrm", dlrm_from},
                                           {"wukong", wukong_from},
                                           {"dhen", dhen_from},
                                           {"dit", dit_from},
                                           {"rnn_ctc", rnn_ctc_from},
                                           {"graph", graph_from}});
  const bool transformer = reader == nullptr;
  Workload w;
  if (transformer) {
    w.model = transformer_from(v);
  } else {
    w.model = reader(v);
  }
  w.name = v.at("name", "a name in quotes").name();
  if (const auto source = v.find("source")) {
    (void)source->text("where the facts come from");
  }
  if (const auto approximated = v.find("approximated"); approximated && !transformer) {
    for (const Value& what : approximated->items("a list of phrases")) {
      (void)what.text("what the description leaves out");
    }
  }
  if (const auto batch = v.find("default_batch")) {
    w.default_batch = default_batch_from(*batch, transformer);
  }
  return w;
}

OrderedJson workload_json(const Workload& w) {
  OrderedJson j;
  const bool transformer = w.transformer() != nullptr;
  const LayerModel* layers = transformer ? nullptr : w.layered()->layers.get();
  j["kind"] = transformer ? "transformer" : layers != nullptr ? layers->kind() : "dlrm";
  j["name"] = w.name;
  if (transformer) {
    add_transformer(j, *w.transformer());
  } else if (layers != nullptr) {
    add_layer_model(j, *layers);
    if (!w.layered()->top_mlp.empty()) {
      j["dense_features"] = w.layered()->dense_features;
      j["bottom_mlp"] = w.layered()->bottom_mlp;
      j["top_mlp"] = w.layered()->top_mlp;
    }
    if (!w.layered()->tables.empty()) {
      add_tables(j, *w.layered());
    }
  } else {
    add_dlrm(j, *w.layered());
  }
  if (w.default_batch) {
    j["default_batch"] = batch_json(*w.default_batch, transformer);
  }
  return j;
}

}  // namespace stepcast::config
