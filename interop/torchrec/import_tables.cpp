#include <algorithm>
#include <set>

#include "interop/embedding_tables/described_tables.h"
#include "interop/torchrec/internal/parts.h"
#include "interop/torchrec/rules.h"

// TorchRec's table configs and planner constraints -> workload, and the batch, devices and
// constraints of its job. The keys are those of EmbeddingBagConfig and EmbeddingConfig
// (torchrec/modules/embedding_configs.py), ParameterConstraints and Topology
// (torchrec/distributed/planner/types.py).
namespace stepcast::interop {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr const char* kNotModelled = "is not modelled";

std::vector<std::string> words(const Value& v, const char* expected) {
  std::vector<std::string> all;
  for (const Value& word : v.items(expected, 1)) {
    all.push_back(last_word(word, expected));
  }
  return all;
}

/// One number for each feature of a table, where they are given.
std::optional<std::vector<double>> per_feature(const Value& constraints, const char* key,
                                               std::size_t features) {
  const auto found = given(constraints, key);
  if (!found) {
    return std::nullopt;
  }
  std::vector<double> all;
  for (const Value& number : found->items("a list with a number for each feature", 1)) {
    all.push_back(number.number(1e-9, 1e9));
  }
  if (all.size() != features) {
    found->reject(fmt::format("found {} numbers, expected {}: one for each feature of the table",
                              all.size(), features));
  }
  return all;
}

/// Each feature is pooled once per sample of one batch.
void expect_one_pooling(const Value& constraints, std::size_t features,
                        std::optional<std::int64_t> local_batch) {
  if (const auto poolings = per_feature(constraints, "num_poolings", features);
      poolings &&
      std::any_of(poolings->begin(), poolings->end(), [](double n) { return n != 1; })) {
    constraints.at("num_poolings", "")
        .reject(
            "a feature that is pooled several times per sample is not modelled; give it as so many "
            "features");
  }
  if (const auto batches = per_feature(constraints, "batch_sizes", features);
      batches && std::any_of(batches->begin(), batches->end(), [&](double n) {
        return !local_batch || n != static_cast<double>(*local_batch);
      })) {
    constraints.at("batch_sizes", "")
        .reject("a feature with another batch than batch_size is not modelled; leave it out");
  }
}

/// sharding_types and compute_kernels -> the shardings and memory of embedding.constraints.
void add_placements(const Value& of_table, Json& to) {
  std::set<std::string> shardings;
  const auto types = given(of_table, "sharding_types");
  if (types) {
    for (std::string type : words(*types, "a list of sharding types")) {
      // Parts of TorchRec's table_column_wise lie in one machine and grid_shard splits rows and
      // columns: plans here have neither, and the other types in the list remain.
      if (type == "table_column_wise" || type == "grid_shard") {
        continue;
      }
      if (torchrec_sharding(type) == nullptr) {
        types->reject(fmt::format("found \"{}\", expected sharding types of TorchRec", type));
      }
      shardings.insert(std::move(type));
    }
    if (shardings.empty()) {
      types->reject(
          "only allows shardings that are not searched; add column_wise, table_row_wise or "
          "another");
    }
  }
  if (const auto kernels = given(of_table, "compute_kernels")) {
    const std::vector<std::string> named = words(*kernels, "a list of compute kernels");
    const auto has = [&](const char* name) {
      return std::find(named.begin(), named.end(), name) != named.end();
    };
    for (const std::string& name : named) {
      if (name != "dense" && name != "fused" && name != "fused_uvm" &&
          name != "fused_uvm_caching") {
        kernels->reject(
            fmt::format("found \"{}\": only dense, fused, fused_uvm and "
                        "fused_uvm_caching are modelled",
                        name));
      }
    }
    const bool uvm = has("fused_uvm") || has("fused_uvm_caching");
    if (has("dense") && uvm && !has("fused")) {
      kernels->reject(
          "allows copies in device memory or rows in host memory but none split in device memory, "
          "which is not modelled; add fused, or leave dense out");
    }
    if (shardings.empty()) {
      shardings = {"data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise"};
    }
    std::erase_if(shardings, [&](const std::string& type) {
      return type == "data_parallel" ? !has("dense") : !has("fused") && !uvm;
    });
    if (shardings.empty()) {
      kernels->reject(
          "allows none of the sharding_types: TorchRec runs data_parallel with kernel dense and "
          "all others with fused kernels");
    }
    to["memory"] = Json::array();
    if (has("fused") || has("dense")) {
      to["memory"].push_back("hbm");
    }
    if (uvm) {
      to["memory"].push_back(kTorchRecHostTier);
      if (has("fused_uvm") != has("fused_uvm_caching")) {
        to["cache"] = has("fused_uvm_caching");
      }
    }
  }
  if (!shardings.empty()) {
    to["sharding"] = shardings;
  }
  if (const auto narrowest = given(of_table, "min_partition")) {
    to["narrowest_columns"] = narrowest->integer(1, 1 << 20);
  }
}

class TorchRecReader {
 public:
  explicit TorchRecReader(const Value& root)
      : constraints_(given(root, "constraints")), d_(begun(root, "torchrec")) {
    if (const auto batch = given(root, "batch_size")) {
      local_batch_ = batch->integer(1, std::int64_t{1} << 31);
    }
  }

  Described read(const Value& v) {
    for (const bool sequence : {false, true}) {
      if (const auto found =
              given(v, sequence ? "embedding_collection" : "embedding_bag_collection")) {
        collection(*found, sequence);
      }
    }
    expect_known_tables();
    add_dense(v, "dense_in_features", "dense_arch_layer_sizes", "over_arch_layer_sizes",
              "dcn_num_layers", "dcn_low_rank_dim", d_.workload);
    const auto ranks = given(v, "world_size");
    if (ranks) {
      d_.job["devices"] = ranks->integer(1, kMostRanks);
    }
    if (local_batch_) {
      if (!ranks) {
        throw InputError(v.where("world_size"),
                         "is missing, expected the number of ranks: batch_size is that of one "
                         "rank");
      }
      add_batch(*local_batch_ * ranks->integer(1, kMostRanks), d_);
    }
    if (const auto machine = given(v, "local_world_size")) {
      d_.job["devices_per_machine"] = machine->integer(1, kMostRanks);
    }
    return std::move(d_);
  }

 private:
  void collection(const Value& v, bool sequence) {
    v.keys({"tables", "is_weighted", "device", "need_indices"});
    const auto weighted = given(v, "is_weighted");
    if (sequence && weighted && weighted->boolean()) {
      weighted->reject("found true: rows that are not pooled have no weights; use false");
    }
    for (const Value& t : v.at("tables", "a list of table configs")
                              .items("a list of at least one table config", 1)) {
      d_.workload["tables"].push_back(table(t, sequence, weighted && weighted->boolean()));
    }
  }

  Json table(const Value& v, bool sequence, bool weighted) {
    v.keys({"name", "num_embeddings", "embedding_dim", "feature_names", "pooling", "data_type",
            "weight_init_max", "weight_init_min", "init_fn", "need_pos", "input_dim",
            "pruning_indices_remapping", "num_embeddings_post_pruning", "total_num_buckets",
            "use_virtual_table", "enable_embedding_update"});
    must_be_absent(v,
                   {"pruning_indices_remapping", "num_embeddings_post_pruning", "total_num_buckets",
                    "input_dim"},
                   "pruned and hashed tables are not read; num_embeddings counts the rows held");
    for (const char* flag : {"use_virtual_table", "need_pos", "enable_embedding_update"}) {
      if (const auto found = given(v, flag); found && found->boolean()) {
        found->reject(fmt::format("found true: {}; use false", kNotModelled));
      }
    }
    Json t = Json::object();
    const std::string name = v.at("name", "the name of the table").name();
    t["name"] = name;
    t["rows"] = v.at("num_embeddings", "its rows").integer(1, config::kMostRows);
    t["dim"] = v.at("embedding_dim", "its columns").integer(1, 1 << 20);
    std::vector<std::string> features;
    if (const auto named = given(v, "feature_names")) {
      for (const Value& feature : named->items("a list with the names of its features", 1)) {
        features.push_back(feature.name());
      }
    }
    add_lookups(name, features, weighted, sequence, t);
    const auto pooling = given(v, "pooling");
    if (sequence && pooling) {
      pooling->reject("an embedding collection does not pool; leave it out");
    }
    t["mode"] = sequence ? "sequence" : pooling ? pooling_mode(*pooling) : "sum";
    if (const auto type = given(v, "data_type")) {
      const char* expected = "FP32, FP16, BF16 or INT8";
      const std::string word = last_word(*type, expected);
      if (word != "fp32" && word != "fp16" && word != "bf16" && word != "int8") {
        type->fail(expected);
      }
      if (word != "fp32") {  // FBGEMM's int8 rows carry a scale and a bias in fp32
        t["format"] = word == "int8" ? "int8_row" : word;
      }
    }
    return t;
  }

  /// Adds what the constraints say of one table's lookups and of its plan.
  void add_lookups(const std::string& name, const std::vector<std::string>& features, bool weighted,
                   bool sequence, Json& t) {
    const std::size_t count = std::max<std::size_t>(1, features.size());
    std::vector<double> pooling(count, 1);
    const auto c = constraints_ ? given(*constraints_, name.c_str()) : std::nullopt;
    if (c) {
      c->keys({"pooling_factors", "num_poolings", "batch_sizes", "is_weighted", "sharding_types",
               "compute_kernels", "min_partition", "cache_params", "enforce_hbm",
               "stochastic_rounding", "bounds_check_mode", "feature_names", "output_dtype",
               "device_group", "key_value_params"});
      must_be_absent(*c, {"cache_params", "device_group", "key_value_params"}, kNotModelled);
      if (const auto enforce = given(*c, "enforce_hbm"); enforce && enforce->boolean()) {
        enforce->reject("found true: is not modelled; give compute_kernels [\"fused\", \"dense\"]");
      }
      if (const auto type = given(*c, "output_dtype"); type && last_word(*type, "FP32") != "fp32") {
        type->reject(
            "found another type than FP32: what a lookup puts out travels in the job's "
            "formats.all_to_all_forward; set that");
      }
      if (const auto named = given(*c, "feature_names")) {
        std::vector<std::string> same;
        for (const Value& feature : named->items("the names of its features", 1)) {
          same.push_back(feature.name());
        }
        if (same != features) {
          named->reject("differs from the feature_names of the table; leave it out");
        }
      }
      pooling = per_feature(*c, "pooling_factors", count).value_or(pooling);
      expect_one_pooling(*c, count, local_batch_);
      if (const auto flag = given(*c, "is_weighted")) {
        if (flag->boolean() && sequence) {
          flag->reject("found true: rows that are not pooled have no weights; use false");
        }
        weighted = flag->boolean();
      }
      Json placements = Json::object();
      add_placements(*c, placements);
      if (!placements.empty()) {
        d_.job["embedding"]["constraints"][name] = std::move(placements);
      }
    }
    if (count == 1) {
      t["pooling"] = pooling.front();
    } else {
      t["features"] = Json::array();
      for (std::size_t i = 0; i < count; ++i) {
        t["features"].push_back({{"name", features[i]}, {"pooling", pooling[i]}});
      }
    }
    if (weighted) {
      t["weighted"] = true;
    }
  }

  void expect_known_tables() const {
    if (!constraints_) {
      return;
    }
    std::vector<std::string> names;
    for (const Json& t : d_.workload["tables"]) {
      names.push_back(t["name"]);
    }
    for (const auto& [table, value] : constraints_->members()) {
      if (std::find(names.begin(), names.end(), table) == names.end()) {
        value.reject(fmt::format("no table is called \"{}\"; {}", table, suggestion(table, names)));
      }
    }
  }

  std::optional<Value> constraints_;
  std::optional<std::int64_t> local_batch_;
  Described d_;
};

Described described_by_torchrec(const Value& v) {
  v.keys({"name", "embedding_bag_collection", "embedding_collection", "constraints", "batch_size",
          "world_size", "local_world_size", "dense_in_features", "dense_arch_layer_sizes",
          "over_arch_layer_sizes", "dcn_num_layers", "dcn_low_rank_dim"});
  return TorchRecReader(v).read(v);
}

}  // namespace

Described torchrec::described_tables(const Value& v) { return described_by_torchrec(v); }

namespace {

bool is_torchrec_tables(const Json& root) {
  return describes_tables(root) &&
         (root.contains("embedding_bag_collection") || root.contains("embedding_collection"));
}

}  // namespace

ForeignFormat torchrec_tables() {
  return tables_format<described_by_torchrec>("tables of TorchRec", is_torchrec_tables);
}

}  // namespace stepcast::interop
