#include <algorithm>
#include <set>

#include "core/config/internal/foreign.h"

// TorchRec's embedding collections and HugeCTR's embedding tables -> workload, and the batch,
// device count and table format of its job. docs/embedding-inputs.md shows both files.
namespace stepcast::config {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;
constexpr std::int64_t kMostRanks = 1 << 20;

/// What both kinds of file describe.
struct Described {
  Json workload = Json::object();
  Json job = Json::object();  ///< batch, devices, formats
};

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

/// "SUM", "PoolingType.SUM", "sum" -> "sum".
std::string last_word(const Value& v, const char* expected) {
  std::string text = v.text(expected);
  text = text.substr(text.rfind('.') + 1);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string pooling_mode(const Value& v) {
  const std::string mode = last_word(v, "SUM or MEAN");
  if (mode != "sum" && mode != "mean") {
    v.fail("SUM or MEAN");
  }
  return mode;
}

/// The dense part: its own numbers where the file has them, else one narrow layer on either side,
/// so that nearly all of a step is embeddings.
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

// TorchRec.

/// A number per feature; a table here has one.
double pooling_factor(const Value& constraints, const std::string& table) {
  const auto of_table = given(constraints, table.c_str());
  if (!of_table) {
    return 1;
  }
  of_table->keys({"pooling_factors", "num_poolings", "batch_sizes", "is_weighted", "sharding_types",
                  "compute_kernels", "min_partition", "cache_params", "enforce_hbm",
                  "stochastic_rounding", "bounds_check_mode", "feature_names", "output_dtype",
                  "device_group", "key_value_params"});
  must_be_absent(*of_table, {"num_poolings", "batch_sizes"},
                 "every feature is pooled once per sample of one batch here");
  must_be_absent(*of_table,
                 {"sharding_types", "compute_kernels", "min_partition", "cache_params",
                  "enforce_hbm", "device_group", "key_value_params"},
                 "constraints on the plan are not read");
  const auto factors = given(*of_table, "pooling_factors");
  if (!factors) {
    return 1;
  }
  const auto all = factors->items("a list with the mean lookups of the feature", 1);
  if (all.size() != 1) {
    factors->refuse(fmt::format("found {} numbers, but the table has one feature", all.size()));
  }
  return all.front().number(1e-9, 1e9);
}

Json table_of_torchrec(const Value& v, const std::optional<Value>& constraints, bool sequence,
                       std::string& format) {
  v.keys({"name", "num_embeddings", "embedding_dim", "feature_names", "pooling", "data_type",
          "weight_init_max", "weight_init_min", "init_fn", "need_pos", "input_dim",
          "pruning_indices_remapping", "num_embeddings_post_pruning", "total_num_buckets",
          "use_virtual_table", "enable_embedding_update"});
  must_be_absent(v,
                 {"pruning_indices_remapping", "num_embeddings_post_pruning", "total_num_buckets",
                  "input_dim"},
                 "pruned and hashed tables are not read; num_embeddings counts the rows held");
  if (const auto virtual_table = given(v, "use_virtual_table");
      virtual_table && virtual_table->boolean()) {
    virtual_table->refuse("found true: virtual tables are not read; use false");
  }
  Json t = Json::object();
  const std::string name = v.at("name", "the name of the table").name();
  t["name"] = name;
  t["rows"] = v.at("num_embeddings", "its rows").integer(1, kMost);
  t["dim"] = v.at("embedding_dim", "its columns").integer(1, 1 << 20);
  if (const auto features = given(v, "feature_names")) {
    const auto all = features->items("a list with the name of its feature", 1);
    if (all.size() != 1) {
      features->refuse(
          fmt::format("table \"{}\" serves {} features; a table of a workload serves one: give "
                      "each feature a table, or one feature the lookups of all",
                      name, all.size()));
    }
  }
  t["pooling"] = constraints ? pooling_factor(*constraints, name) : 1;
  const auto pooling = given(v, "pooling");
  if (sequence && pooling) {
    pooling->refuse("an embedding collection does not pool; leave it out");
  }
  t["mode"] = sequence ? "sequence" : pooling ? pooling_mode(*pooling) : "sum";
  if (const auto type = given(v, "data_type")) {
    const std::string word = last_word(*type, "FP32, FP16 or BF16");
    if (word != "fp32" && word != "fp16" && word != "bf16") {
      type->fail("FP32, FP16 or BF16");
    }
    if (!format.empty() && format != word) {
      type->refuse(
          fmt::format("found {}, but tables above are {}: all tables of a job have one "
                      "format",
                      shown(type->json()), format));
    }
    format = word;
  }
  return t;
}

/// A DLRM without tables yet, named as the document says.
Described begun(const Value& v, const char* usual_name) {
  Described d;
  const auto name = given(v, "name");
  d.workload["kind"] = "dlrm";
  d.workload["name"] = name ? name->name() : usual_name;
  d.workload["tables"] = Json::array();
  return d;
}

Described described_by_torchrec(const Value& v) {
  v.keys({"name", "embedding_bag_collection", "embedding_collection", "constraints", "batch_size",
          "world_size", "dense_in_features", "dense_arch_layer_sizes", "over_arch_layer_sizes",
          "dcn_num_layers", "dcn_low_rank_dim"});
  Described d = begun(v, "torchrec");
  Json& w = d.workload;
  const auto constraints = given(v, "constraints");
  std::string format;
  for (const bool sequence : {false, true}) {
    const auto collection =
        given(v, sequence ? "embedding_collection" : "embedding_bag_collection");
    if (!collection) {
      continue;
    }
    collection->keys({"tables", "is_weighted", "device", "need_indices"});
    if (const auto weighted = given(*collection, "is_weighted"); weighted && weighted->boolean()) {
      weighted->refuse("found true: lookups with weights are not modelled; use false");
    }
    for (const Value& t : collection->at("tables", "a list of table configs")
                              .items("a list of at least one table config", 1)) {
      w["tables"].push_back(table_of_torchrec(t, constraints, sequence, format));
    }
  }
  if (constraints) {
    for (const auto& [table, value] : constraints->members()) {
      std::vector<std::string> names;
      for (const Json& t : w["tables"]) {
        names.push_back(t["name"]);
      }
      if (std::find(names.begin(), names.end(), table) == names.end()) {
        value.refuse(fmt::format("no table is called \"{}\"; {}", table, suggestion(table, names)));
      }
    }
  }
  add_dense(v, "dense_in_features", "dense_arch_layer_sizes", "over_arch_layer_sizes",
            "dcn_num_layers", "dcn_low_rank_dim", w);
  const auto ranks = given(v, "world_size");
  if (ranks) {
    d.job["devices"] = ranks->integer(1, kMostRanks);
  }
  if (const auto batch = given(v, "batch_size")) {
    const std::int64_t local = batch->integer(1, std::int64_t{1} << 31);
    if (!ranks) {
      throw InputError(v.where("world_size"),
                       "is missing, expected the number of ranks: batch_size is that of one rank");
    }
    add_batch(local * ranks->integer(1, kMostRanks), d);
  }
  if (!format.empty() && format != "fp32") {
    d.job["formats"] = {{"embedding", format}};
  }
  return d;
}

// HugeCTR.

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
    table["rows"] = t.at("max_vocabulary_size", "its rows").integer(1, kMost);
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
  return by_torchrec(v.json()) ? described_by_torchrec(v) : described_by_hugectr(v);
}

}  // namespace

bool is_embedding_tables(const Json& root) {
  return root.is_object() && !root.contains("kind") && !root.contains("workload") &&
         (by_torchrec(root) || root.contains("embedding_tables") || root.contains("table_list"));
}

Document workload_of_embedding_tables(Document d) {
  Described found = described(Value::root_of(d));
  if (found.job.contains("formats")) {
    throw InputError(d.label, fmt::format("describes tables or exchanges in another format than "
                                          "fp32 ({}), which belongs to the job: give this file as "
                                          "the job itself, or make it fp32 and set \"formats\"",
                                          found.job["formats"].dump()));
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
