#include <set>

#include "interop/embedding_tables/described_tables.h"

// HugeCTR's embedding tables, solver and sizes of the dense model -> workload, and the batch,
// devices and formats of its job.
namespace stepcast::interop {
namespace {

Described described_by_hugectr(const Value& v) {
  v.keys({"name", "solver", "embedding_tables", "dense_dim", "bmlp_layer_sizes", "tmlp_layer_sizes",
          "num_cross_layers", "projection_dim"});
  Described d = begun(v, "hugectr");
  Json& w = d.workload;
  for (const Value& t :
       v.at("embedding_tables", "a list of tables").items("a list of at least one table", 1)) {
    t.keys({"name", "max_vocabulary_size", "ev_size", "combiner", "nnz_per_slot"});
    Json table = Json::object();
    table["name"] = t.at("name", "the name of the table").name();
    table["rows"] = t.at("max_vocabulary_size", "its rows").integer(1, config::kMostRows);
    table["dim"] = t.at("ev_size", "its columns").integer(1, 1 << 20);
    const auto hot = given(t, "nnz_per_slot");
    table["pooling"] = hot ? hot->number(1e-9, 1e9) : 1;
    const auto combiner = given(t, "combiner");
    const std::string how = combiner ? last_word(*combiner, "sum, mean or concat") : "sum";
    if (how == "concat") {
      table["mode"] = "sequence";
    } else {
      table["mode"] = combiner ? pooling_mode(*combiner) : "sum";
    }
    w["tables"].push_back(std::move(table));
  }
  add_dense(v, "dense_dim", "bmlp_layer_sizes", "tmlp_layer_sizes", "num_cross_layers",
            "projection_dim", w);
  const auto solver = given(v, "solver");
  if (!solver) {
    return d;
  }
  // Learning rates and the like change no cost; what may is read or rejected.
  static const std::set<std::string> kHarmless{"model_name",     "lr",
                                               "warmup_steps",   "decay_start",
                                               "decay_steps",    "decay_power",
                                               "end_lr",         "max_eval_batches",
                                               "batchsize_eval", "repeat_dataset",
                                               "scaler",         "seed",
                                               "i64_input_key",  "use_embedding_collection",
                                               "use_cuda_graph", "metrics_spec"};
  for (const auto& [key, value] : solver->members()) {
    if (key == "batchsize") {
      add_batch(value.integer(1, std::int64_t{1} << 32), d);
    } else if (key == "vvgpu") {
      std::int64_t gpus = 0;
      for (const Value& machine : value.items("the GPUs of each machine, such as [[0, 1]]", 1)) {
        gpus += static_cast<std::int64_t>(machine.items("a list of GPUs", 1).size());
      }
      d.job["devices"] = gpus;
    } else if (key == "use_mixed_precision") {
      if (value.boolean()) {
        d.job["formats"] = mixed_precision();
      }
    } else if (kHarmless.count(key) == 0) {
      value.reject(
          fmt::format("found {}: an option that is not read and may change the cost; "
                      "remove it if it does not",
                      shown(value.json())));
    }
  }
  return d;
}

bool is_hugectr_tables(const Json& root) {
  return describes_tables(root) && root.contains("embedding_tables");
}

}  // namespace

ForeignFormat hugectr_tables() {
  return tables_format<described_by_hugectr>("tables and solver of HugeCTR", is_hugectr_tables);
}

}  // namespace stepcast::interop
