#include "interop/embedding_tables/described_tables.h"
#include "interop/torchrec/internal/parts.h"
#include "interop/yaml.h"

// Configurations of TorchRec's own benchmarks (torchrec/distributed/benchmark/yaml/*.yml; what is
// usual stands in torchrec/distributed/test_utils) -> the tables, constraints and topology that
// import_tables.cpp reads.
namespace stepcast::interop {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 31;

class BenchmarkReader {
 public:
  explicit BenchmarkReader(const Value& v) : v_(v) {}

  Described read() {
    const std::int64_t ranks = whole("RunOptions", "world_size", 2);
    out_["world_size"] = ranks;
    for (const char* part : {"RunOptions", "ModelInputConfig"}) {
      if (const auto batch = in(part, "batch_size")) {
        out_["batch_size"] = batch->integer(1, kLargest);
      }
    }
    if (const auto name = in("RunOptions", "name")) {
      out_["name"] = name->name();
    }
    tables();
    dense();
    const config::Document d = document();
    Described found = torchrec::described_tables(Value::root_of(d));
    found.workload["interaction"] = {{"kind", "cat"}};
    const auto pipeline = in("PipelineConfig", "pipeline");
    if (pipeline && pipeline->is("sparse")) {
      found.job["parallel"]["dlrm_pipeline"] = "sparse_dist";
    } else if (pipeline && pipeline->is("prefetch")) {
      found.job["parallel"]["dlrm_pipeline"] = "prefetch";
    } else if (pipeline && !pipeline->is("base")) {
      approximated_.push_back(fmt::format("pipeline {} (as base)", shown(pipeline->json())));
    }
    found.workload["approximated"] = approximated_;
    return found;
  }

 private:
  [[nodiscard]] std::optional<Value> in(const char* part, const char* key) const {
    const auto found = given(v_, part);
    return found ? given(*found, key) : std::nullopt;
  }
  [[nodiscard]] std::int64_t whole(const char* part, const char* key, std::int64_t usual) const {
    const auto found = in(part, key);
    return found ? found->integer(0, kLargest) : usual;
  }

  config::Document document() {
    config::Document d = v_.document();
    d.root = std::move(out_);
    return d;
  }

  void table(Json t, bool weighted) {
    const bool sequence = t.value("config_class", "") == "EmbeddingConfig";
    t.erase("config_class");
    const std::string name = t.value("name", "");
    Json& of = out_["constraints"][name];
    of["pooling_factors"] = Json::array();
    for (std::size_t f = 0; f < std::max<std::size_t>(1, t.value("feature_names", Json()).size());
         ++f) {
      of["pooling_factors"].push_back(whole("ModelInputConfig", "feature_pooling_avg", 10));
    }
    if (weighted && !sequence) {
      of["is_weighted"] = true;
    }
    for (const char* key : {"sharding_type", "compute_kernel"}) {
      if (const auto all = in("RunOptions", key)) {
        of[std::string(key) + "s"] = {all->json()};
      }
    }
    const auto constraints = in("PlannerConfig", "additional_constraints");
    if (const auto own = constraints ? given(*constraints, name.c_str()) : std::nullopt) {
      for (const auto& [key, value] : own->members()) {
        if (key == "cache_params") {
          approximated_.push_back(fmt::format("cache_params of {} (as the planner finds)", name));
        } else {
          of[key] = value.json();
        }
      }
    }
    out_[sequence ? "embedding_collection" : "embedding_bag_collection"]["tables"].push_back(
        std::move(t));
  }

  void tables() {
    const auto dim = whole("EmbeddingTablesConfig", "embedding_feature_dim", 128);
    const auto rows = whole("EmbeddingTablesConfig", "base_row_size", 100'000);
    for (const bool weighted : {false, true}) {
      const std::string prefix = weighted ? "weighted_" : "";
      const auto count = whole("EmbeddingTablesConfig",
                               weighted ? "num_weighted_features" : "num_unweighted_features", 100);
      for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 100'000); ++i) {
        table({{"name", fmt::format("{}table_{}", prefix, i)},
               {"num_embeddings", std::max<std::int64_t>(i + 1, 100) * rows / 100},
               {"embedding_dim", dim},
               {"feature_names", {fmt::format("{}feature_{}", prefix, i)}}},
              weighted);
      }
    }
    const auto more = in("EmbeddingTablesConfig", "additional_tables");
    const std::vector<Value> lists =
        more ? more->items("a list of lists of tables") : std::vector<Value>();
    for (std::size_t i = 0; i < lists.size(); ++i) {
      for (const Value& t : lists[i].items("a list of tables")) {
        if (i < 2 || t.json().value("config_class", "") == "EmbeddingConfig") {
          table(t.json(), i == 1);
        } else {  // TestSparseNN reads two lists
          approximated_.push_back(fmt::format("table {} (left out)", t.at("name", "").name()));
        }
      }
    }
  }

  void dense() {
    const auto model = in("ModelSelectionConfig", "model_config");
    const auto sizes = model ? given(*model, "submodule_kwargs") : std::nullopt;
    const auto size = [&](const char* key, std::int64_t usual) {
      const auto found = sizes ? given(*sizes, key) : std::nullopt;
      return found ? found->integer(1, 1 << 20) : usual;
    };
    const auto features = model ? given(*model, "num_float_features") : std::nullopt;
    out_["dense_in_features"] = features ? features->integer(1, 1 << 20) : 10;
    const auto hidden = sizes ? given(*sizes, "dense_arch_hidden_sizes") : std::nullopt;
    out_["dense_arch_layer_sizes"] = hidden ? hidden->json() : Json::array();
    out_["dense_arch_layer_sizes"].push_back(size("dense_arch_out_size", 8));
    const auto layers = static_cast<std::size_t>(size("over_arch_hidden_layers", 5) + 1);
    out_["over_arch_layer_sizes"] =
        std::vector<std::int64_t>(layers, size("over_arch_out_size", 16));
    out_["over_arch_layer_sizes"].push_back(1);
    approximated_.emplace_back("SwishLayerNorm (as relu)");
  }

  const Value& v_;
  Json out_ = Json::object();
  std::vector<std::string> approximated_;
};

bool is_benchmark(std::string_view text) {
  return text.find("\nEmbeddingTablesConfig:") != std::string_view::npos ||
         text.starts_with("EmbeddingTablesConfig:");
}

Described described(Document& d) {
  d.root = parse_yaml(d.root.get<std::string>(), d.label);
  return BenchmarkReader(Value::root_of(d)).read();
}

}  // namespace

ForeignFormat torchrec_benchmark() {
  return {.what = "a benchmark of TorchRec",
          .inferred_by_text = is_benchmark,
          .job_of =
              [](Document d, const std::vector<std::string>&) {
                Described found = described(d);
                return as_job(std::move(d), std::move(found));
              },
          .workload_of =
              [](Document d) {
                Described found = described(d);
                return as_workload(std::move(d), std::move(found));
              }};
}

}  // namespace stepcast::interop
