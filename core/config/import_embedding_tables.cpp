#include <algorithm>
#include <filesystem>
#include <set>

#include "core/config/internal/described_tables.h"
#include "core/config/internal/foreign.h"
#include "core/lower.h"

// Embedding tables as other systems describe them -> workload, and what the file says of its job.
// HugeCTR's tables, and what all of these files share; docs/reference/table-files.md shows them.
namespace stepcast::config {

std::optional<Value> given(const Value& v, const char* key) {
  const auto found = v.find(key);
  return found && !found->json().is_null() ? found : std::nullopt;
}

void must_be_absent(const Value& v, std::initializer_list<const char*> keys, const char* why) {
  for (const char* key : keys) {
    if (const auto found = given(v, key)) {
      found->refuse(fmt::format("found {}: {}; leave it out", shown(found->json()), why));
    }
  }
}

std::string last_word(const Value& v, const char* expected) {
  const std::string text = v.text(expected);
  return lower(text.substr(text.rfind('.') + 1));
}

std::string pooling_mode(const Value& v) {
  const std::string mode = last_word(v, "SUM or MEAN");
  if (mode != "sum" && mode != "mean") {
    v.fail("SUM or MEAN");
  }
  return mode;
}

void add_dense(const Value& v, const char* features, const char* bottom, const char* top,
               const char* cross_layers, const char* cross_rank, Json& w) {
  const auto in = given(v, features);
  const auto low = given(v, bottom);
  const auto high = given(v, top);
  const auto layers = given(v, cross_layers);
  const auto rank = given(v, cross_rank);
  const Json& first = w["tables"].front()["dim"];
  const std::int64_t dim = first.is_number_integer() ? first.get<std::int64_t>() : 1;
  if (!in && !low && !high && !layers && !rank) {
    w["dense_features"] = 1;
    w["bottom_mlp"] = {dim};
    w["interaction"] = {{"kind", "cat"}};
    w["top_mlp"] = {1};
    return;
  }
  for (const auto& [key, found] :
       {std::pair(features, in), std::pair(bottom, low), std::pair(top, high)}) {
    if (!found) {
      throw InputError(v.where(key),
                       fmt::format("is missing, expected it beside the other sizes of the dense "
                                   "model: {}, {}, {}",
                                   features, bottom, top));
    }
  }
  w["dense_features"] = in->integer(1, 1 << 20);
  w["bottom_mlp"] = low->json();
  w["top_mlp"] = high->json();
  const bool equal = std::all_of(w["tables"].begin(), w["tables"].end(),
                                 [&](const Json& t) { return t["dim"] == dim; });
  if (layers || rank) {
    w["interaction"] = {{"kind", "dcnv2"},
                        {"layers", v.at(cross_layers, "the cross layers").integer(1, 10'000)},
                        {"rank", v.at(cross_rank, "their rank").integer(1, 1 << 20)}};
  } else {
    w["interaction"] = {{"kind", equal ? "dot" : "cat"}};
  }
}

void add_batch(std::int64_t global, Described& d) {
  d.workload["default_batch"] = {{"global", global}};
}

Described begun(const Value& v, const char* usual_name) {
  Described d;
  const auto name = given(v, "name");
  d.workload["kind"] = "dlrm";
  d.workload["name"] = name ? name->name() : usual_name;
  d.workload["tables"] = Json::array();
  return d;
}

// HugeCTR.

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
    table["rows"] = t.at("max_vocabulary_size", "its rows").integer(1, kMostTableRows);
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
  // Learning rates and the like change no cost; what may is read or refused.
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
        // Weights stay fp32; what travels and is computed with is fp16.
        d.job["formats"] = {
            {"compute", "fp16"}, {"all_to_all_forward", "fp16"}, {"all_to_all_backward", "fp16"}};
      }
    } else if (kHarmless.count(key) == 0) {
      value.refuse(
          fmt::format("found {}: an option that is not read and may change the cost; "
                      "remove it if it does not",
                      shown(value.json())));
    }
  }
  return d;
}

bool by_torchrec(const Json& root) {
  return root.contains("embedding_bag_collection") || root.contains("embedding_collection");
}

/// A list of tables (table_list.h): already in our words. Its files are relative to its folder,
/// what is made of it may lie elsewhere.
Described described_by_list(const Value& v) {
  v.keys({"table_list"});
  Described d;
  const std::filesystem::path file(v.document().label);
  d.workload = {{"kind", "dlrm"},
                {"name", file.has_extension() ? file.stem().string() : "tables"},
                {"tables", v.json().at("table_list")}};
  for (Json& t : d.workload["tables"]) {
    for (const char* key : {"histogram", "indices"}) {
      if (t.contains("access") && t["access"].contains(key)) {
        const std::filesystem::path named = t["access"][key].get<std::string>();
        t["access"][key] =
            std::filesystem::absolute(v.document().folder / named).lexically_normal().string();
      }
    }
  }
  add_dense(v, "dense_features", "bottom_mlp", "top_mlp", "cross_layers", "cross_rank", d.workload);
  return d;
}

Described described(const Value& v) {
  if (v.json().contains("table_list")) {
    return described_by_list(v);
  }
  if (v.json().contains("arch_embedding_size")) {
    return described_by_deeprecsys(v);
  }
  return by_torchrec(v.json()) ? described_by_torchrec(v) : described_by_hugectr(v);
}

}  // namespace

bool is_embedding_tables(const Json& root) {
  return root.is_object() && !root.contains("kind") && !root.contains("workload") &&
         (by_torchrec(root) || root.contains("embedding_tables") || root.contains("table_list") ||
          root.contains("arch_embedding_size"));
}

Document workload_of_embedding_tables(Document d) {
  Described found = described(Value::root_of(d));
  for (const char* key : {"formats", "embedding", "devices_per_machine"}) {
    if (found.job.contains(key)) {
      throw InputError(d.label,
                       fmt::format("says what belongs to the job and not to its workload ({}: "
                                   "{}): give this file as the job itself, or leave that out and "
                                   "set \"{}\" in the job",
                                   key, found.job[key].dump(), key));
    }
  }
  d.root = std::move(found.workload);
  return d;
}

Document job_of_embedding_tables(Document d) {
  Described found = described(Value::root_of(d));
  found.job["workload"] = std::move(found.workload);
  d.root = std::move(found.job);
  return d;
}

}  // namespace stepcast::config
