// Files of recommenders as their tools write them: layers of HugeCTR, arguments of the reference
// DLRM, benchmarks of TorchRec, lists with columns that nobody reads.
#include <catch2/catch.hpp>
#include <filesystem>

#include "core/config/foreign.h"
#include "core/job/layers.h"
#include "interop/yaml.h"
#include "tests/interop/imports.h"

using namespace stepcast;
using Catch::Contains;
using test::kLibrary;

namespace {

Job job_of(const std::string& text, std::vector<std::string> more = {}) {
  more.emplace_back("system=dgx-h100");
  return config::load_job(config::text_source(text, "file"), more, kLibrary);
}

std::vector<std::string> approximated(const std::string& text) {
  return config::approximated(config::text_source(text, "file"), kLibrary);
}

std::string rejection(const std::string& text) {
  try {
    (void)job_of(text);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

/// Two dense layers, tables of three slots, `middle`, and what ends the list.
std::string layers(
    const std::string& middle, const std::string& last,
    const std::string& embedding =
        R"("slot_size_array": [400, 30, 5], "embedding_vec_size": 16, "combiner": 0)") {
  return R"({"solver": {"batchsize": 512, "gpu": [0, 1, 2, 3], "mixed_precision": 1024, "display": 9},
    "optimizer": {"type": "SGD", "update_type": "Local"},
    "layers": [
      {"name": "data", "type": "Data", "label": {"top": "label", "label_dim": 1},
       "dense": {"top": "dense", "dense_dim": 13},
       "sparse": [{"top": "data1", "type": "LocalizedSlot", "max_nnz": 2, "slot_num": 3}]},
      {"name": "emb", "type": "LocalizedSlotSparseEmbeddingHash", "bottom": "data1", "top": "emb",
       "sparse_embedding_hparam": {)" +
         embedding + R"(}},
      {"name": "fc1", "type": "FusedInnerProduct", "bottom": "dense", "top": "fc1", "fc_param": {"num_output": 16}},)" +
         middle + R"({"name": "out", "type": "InnerProduct", "bottom": ")" + last +
         R"(", "top": "out", "fc_param": {"num_output": 1}},
      {"name": "loss", "type": "BinaryCrossEntropyLoss", "bottom": ["out", "label"], "top": "loss"}]})";
}

const std::string kInteraction =
    R"({"name": "inter", "type": "Interaction", "bottom": ["fc1", "emb"], "top": "inter"},)";

}  // namespace

TEST_CASE("a list of layers of HugeCTR is a job", "[interop][hugectr]") {
  const Job job = job_of(layers(kInteraction, "inter"));
  CHECK(job.devices == 4);
  CHECK(job.batch.global == 512);
  CHECK(job.formats.compute == Format::kFp16);
  CHECK(job.embedding_choice == "table_wise");
  CHECK(job.embedding_optimizer == OptimizerKind::kSgd);
  const LayeredWorkload& w = *job.workload.layered();
  REQUIRE(w.tables.size() == 3);
  CHECK(w.tables[0].rows == 400);
  CHECK(w.tables[2].rows == 5);
  CHECK(w.tables[1].dim == 16);
  CHECK(w.tables[1].pooling == 2);
  CHECK(w.dense_features == 13);
  CHECK(approximated(layers(kInteraction, "inter")).empty());
  // 13 x 16; 4 vectors of 16 make 6 dots; 16 + 6 columns to one logit.
  CHECK(forward_flops(layers_of(w)) == 2 * (13 * 16 + 6 * 16 + 22));
  // The same as a dlrm.
  const Job again = job_of(config::job_to_json(job));
  CHECK(config::job_to_json(again) == config::job_to_json(job));

  // Deep and cross: slices, cross layers, dropout, concatenation.
  const std::string cross = layers(
      R"({"name": "flat", "type": "Reshape", "bottom": "emb", "top": "flat", "leading_dim": 48},
      {"name": "all", "type": "Concat", "bottom": ["flat", "fc1"], "top": "all"},
      {"name": "two", "type": "Slice", "bottom": "all", "ranges": [[0, 64], [0, 64]], "top": ["s1", "s2"]},
      {"name": "cross", "type": "MultiCross", "bottom": "s1", "top": "cross", "mc_param": {"num_layers": 2}},
      {"name": "deep", "type": "InnerProduct", "bottom": "s2", "top": "deep", "fc_param": {"num_output": 32}},
      {"name": "relu", "type": "ReLU", "bottom": "deep", "top": "relu"},
      {"name": "drop", "type": "Dropout", "rate": 0.5, "bottom": "relu", "top": "drop"},
      {"name": "both", "type": "Concat", "bottom": ["drop", "cross"], "top": "both"},)",
      "both", R"("vocabulary_size": 900, "embedding_vec_size": 16, "combiner": 1)");
  const Job dcn = job_of(cross);
  CHECK(dcn.workload.layered()->tables[0].rows == 300);
  CHECK(dcn.workload.layered()->tables[0].mode == PoolingMode::kMean);
  CHECK(forward_flops(layers_of(*dcn.workload.layered())) ==
        2 * (13 * 16 + 2 * 2 * 64 + 64 * 32 + 96));
  CHECK(approximated(cross).size() == 3);  // equal slots, cross layers, dropout

  CHECK_THAT(rejection(layers(kInteraction, "nothing")),
             Contains("layers[4].bottom") && Contains("which no layer before it makes"));
  CHECK_THAT(
      rejection(layers(R"({"name": "x", "type": "FmOrder2", "bottom": "emb", "top": "x"},)", "x")),
      Contains("layers[3].type") && Contains("FmOrder2") && Contains("kind graph"));
  CHECK_THAT(rejection(layers(kInteraction, "inter", R"("slot_size_array": [1, 2],
               "embedding_vec_size": 16)")),
             Contains("rows of 2 slots") && Contains("has 3"));
}

TEST_CASE("arguments of the reference DLRM are a job", "[interop][dlrm]") {
  const std::string text = R"({"num_embeddings_per_feature": [400, 3], "multi_hot_sizes": [3, 1],
    "embedding_dim": 128, "dense_arch": [512, 128], "over_arch": [64, 1], "interaction": "dcn",
    "dcn_num_layers": 3, "dcn_low_rank_dim": 512, "optimizer": "adagrad", "global_batch": 64, "lr": 0.005})";
  const Job job = job_of(text);
  const LayeredWorkload& w = *job.workload.layered();
  REQUIRE(w.tables.size() == 2);
  CHECK(w.tables[0].rows == 400);
  CHECK(w.tables[0].pooling == 3);
  CHECK(w.dense_features == 13);
  CHECK(w.interaction.kind == InteractionKind::kDcnV2);
  CHECK(w.interaction.rank == 512);
  CHECK(job.batch.global == 64);
  CHECK(job.embedding_optimizer == OptimizerKind::kAdagrad);
  CHECK(approximated(text) == std::vector<std::string>{"lr (passed over)"});
  const Job line = job_of(R"({"num_embeddings_per_feature": "400,3", "embedding_dim": 8,
    "dense_arch_layer_sizes": "16,8", "over_arch_layer_sizes": "8,1", "interaction_type": "original"})",
                          {"batch.global=8"});
  CHECK(line.workload.layered()->bottom_mlp == std::vector<std::int64_t>{16, 8});
  CHECK(line.workload.layered()->interaction.kind == InteractionKind::kDot);
  CHECK_THAT(
      rejection(
          R"({"num_embeddings_per_feature": [4], "multi_hot_size": [2], "embedding_dim": 8})"),
      Contains("multi_hot_sizes"));
}

TEST_CASE("MLPerf's tables and configuration are its zoo workload", "[interop][dlrm]") {
  const std::filesystem::path folder =
      std::filesystem::path(STEPCAST_SHARED_DATA) / "dlrm" / "mlperf_dlrm_v2";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: no " << folder);
    return;
  }
  const LayeredWorkload zoo = *config::load_workload("mlperf-dlrm-v2", kLibrary).layered();
  for (const char* name : {"tables.csv", "config.json"}) {
    const Job job = config::load_job(config::file_source(folder / name),
                                     {"system=dgx-h100", "batch.global=65536"}, kLibrary);
    const LayeredWorkload& w = *job.workload.layered();
    REQUIRE(w.tables.size() == zoo.tables.size());
    for (std::size_t t = 0; t < w.tables.size(); ++t) {
      CHECK(w.tables[t].rows == zoo.tables[t].rows);
      CHECK(w.tables[t].dim == zoo.tables[t].dim);
      CHECK(w.tables[t].pooling == zoo.tables[t].pooling);
    }
    CHECK_FALSE(config::approximated(config::file_source(folder / name), kLibrary).empty());
    if (std::string(name) == "config.json") {
      CHECK(forward_flops(layers_of(w)) == forward_flops(layers_of(zoo)));
    }
  }
}

TEST_CASE("columns that nobody reads are named and passed over", "[interop][tables]") {
  const std::string list = "table,num_embeddings,dim,fp32_bytes\na,100,8,3200\n";
  CHECK(job_of(list, {"batch.global=8"}).workload.layered()->tables[0].rows == 100);
  CHECK(approximated(list) == std::vector<std::string>{"fp32_bytes (passed over)"});
  CHECK_THAT(rejection("name,rows,dim,poling\na,1,2,3\n"), Contains("did you mean \"pooling\""));
}

TEST_CASE("the part of YAML that configurations are written in", "[interop][yaml]") {
  const auto yaml = [](const std::string& text) { return interop::parse_yaml(text, "f.yml"); };
  CHECK(yaml("") == nullptr);
  CHECK(yaml("a: 1\nb:\n  c: 1_000 # more\n  d: [x, 2.5, 'y # z']\ne:\n- 1\n- two\n").dump() ==
        R"({"a":1,"b":{"c":1000,"d":["x",2.5,"y # z"]},"e":[1,"two"]})");
  CHECK(yaml("t:\n  - - name: a\n      rows: 3\n    - name: b\n  - []\n  - - name: c\n").dump() ==
        R"({"t":[[{"name":"a","rows":3},{"name":"b"}],[],[{"name":"c"}]]})");
  CHECK(yaml("a: {b: True, c: null}\nd:\ne: [\n  1, 2,\n  3,\n]\n").dump() ==
        R"({"a":{"b":true,"c":null},"d":null,"e":[1,2,3]})");
  for (const auto& [text, line] :
       std::vector<std::pair<std::string, std::string>>{{"a: 1\n  b: 2\n", "f.yml:2"},
                                                        {"a: [1, 2\n", "f.yml:1"},
                                                        {"a: &x 1\n", "f.yml:1"},
                                                        {"a: 1\na: 2\n", "f.yml:2"},
                                                        {"a:\n  b: 1\n c: 2\n", "f.yml:3"},
                                                        {"a: \"x\n", "f.yml:1"}}) {
    CHECK_THROWS_WITH(yaml(text), Contains(line));
  }
}

TEST_CASE("a benchmark configuration of TorchRec is a job", "[interop][torchrec]") {
  const std::string text = R"(# light
RunOptions:
  world_size: 2
  batch_size: 1_024
  sharding_type: table_wise
  name: "light"
PipelineConfig:
  pipeline: "sparse"
ModelInputConfig:
  num_float_features: 10
  feature_pooling_avg: 30
ModelSelectionConfig:
  model_name: "test_sparse_nn"
  model_config:
    num_float_features: 100
    submodule_kwargs:
      dense_arch_out_size: 128
      over_arch_out_size: 64
      over_arch_hidden_layers: 2
      dense_arch_hidden_sizes: [
        256, 128,
      ]
EmbeddingTablesConfig:
  num_unweighted_features: 2
  num_weighted_features: 1
  embedding_feature_dim: 256
  additional_tables:
    - - name: FP16_table
        embedding_dim: 512
        num_embeddings: 50_000
        feature_names: ["additional_0_0"]
        data_type: FP16
    - []
    - - name: skipped_table
        embedding_dim: 128
        num_embeddings: 100_000
        feature_names: ["additional_2_1"]
PlannerConfig:
  additional_constraints:
    FP16_table:
      sharding_types: [column_wise]
)";
  const Job job = job_of(text);
  CHECK(job.workload.name == "light");
  CHECK(job.devices == 2);
  CHECK(job.batch.global == 2048);
  CHECK(job.parallel.dlrm_pipeline == DlrmPipeline::kSparseDist);
  const LayeredWorkload& w = *job.workload.layered();
  REQUIRE(w.tables.size() == 4);
  CHECK(w.tables[0].name == "table_0");
  CHECK(w.tables[0].rows == 100'000);
  CHECK(w.tables[0].dim == 256);
  CHECK(w.tables[0].pooling == 30);
  CHECK_FALSE(w.tables[0].weighted);
  CHECK(w.tables[2].weighted);
  CHECK(w.tables[3].rows == 50'000);
  CHECK(job.row_format(w.tables[3]) == Format::kFp16);
  CHECK(w.dense_features == 100);
  CHECK(w.bottom_mlp == std::vector<std::int64_t>{256, 128, 128});
  CHECK(w.top_mlp == std::vector<std::int64_t>{64, 64, 64, 1});
  CHECK(w.interaction.kind == InteractionKind::kCat);
  const auto constraint = [&](const char* table) {
    return *std::find_if(job.plan_constraints.begin(), job.plan_constraints.end(),
                         [&](const TableConstraint& c) { return c.table == table; });
  };
  CHECK(constraint("table_0").shardings == std::vector<ShardingKind>{ShardingKind::kTableWise});
  CHECK(constraint("FP16_table").shardings == std::vector<ShardingKind>{ShardingKind::kColumnWise});
  CHECK(approximated(text) ==
        std::vector<std::string>{"table skipped_table (left out)", "SwishLayerNorm (as relu)"});
  CHECK_THAT(rejection("EmbeddingTablesConfig:\n  embedding_feature_dim: wide\n"),
             Contains("EmbeddingTablesConfig.embedding_feature_dim") && Contains("wide"));
}
