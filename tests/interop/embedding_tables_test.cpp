// Tables of TorchRec collections and of HugeCTR as workloads and jobs.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include "core/access/access.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/job/layers.h"
#include "interop/import.h"
#include "tests/folder.h"

using namespace stepcast;
using Catch::Matchers::Contains;

namespace {

const config::Library kLibrary = interop::library(STEPCAST_SOURCE_DIR);

std::string collection(const std::string& tables, const std::string& more = "") {
  return R"({"embedding_bag_collection": {"tables": [)" + tables + "]}" + more + "}";
}
std::string table(const std::string& name, const std::string& more = "") {
  return R"({"name": ")" + name +
         R"(", "num_embeddings": 1000, "embedding_dim": 16, "feature_names": ["f"])" + more + "}";
}

Job job_of(const std::string& text, std::vector<std::string> more = {}) {
  more.emplace_back("system=dgx-h100");
  return config::load_job(config::text_source(text, "ebc.json"), more, kLibrary);
}

std::string rejection(const std::string& text) {
  try {
    (void)job_of(text);
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a TorchRec collection is a job", "[config][torchrec]") {
  const Job job = job_of(collection(
      table("a", R"(, "pooling": "PoolingType.MEAN", "data_type": "DataType.FP16")") + "," +
          table("b", R"(, "data_type": "FP16", "init_fn": null)"),
      R"(, "embedding_collection": {"tables": [)" + table("s", R"(, "data_type": "FP16")") + R"(]},
         "constraints": {"a": {"pooling_factors": [12.5]}, "s": {"pooling_factors": [50]}},
         "batch_size": 512, "world_size": 8, "dense_in_features": 13,
         "dense_arch_layer_sizes": [64, 16], "over_arch_layer_sizes": [32, 1],
         "dcn_num_layers": 2, "dcn_low_rank_dim": 8)"));
  const LayeredWorkload& w = *job.workload.layered();
  REQUIRE(w.tables.size() == 3);
  CHECK(w.tables[0].rows == 1000);
  CHECK(w.tables[0].dim == 16);
  CHECK(w.tables[0].pooling == 12.5);
  CHECK(w.tables[0].mode == PoolingMode::kMean);
  CHECK(w.tables[1].pooling == 1);
  CHECK(w.tables[1].mode == PoolingMode::kSum);
  CHECK(w.tables[2].mode == PoolingMode::kSequence);
  CHECK(w.tables[2].pooling == 50);
  CHECK(w.interaction.kind == InteractionKind::kDcnV2);
  CHECK(job.devices == 8);
  CHECK(job.batch.global == 4096);
  for (const EmbeddingTable& t : w.tables) {
    CHECK(job.row_format(t) == Format::kFp16);
  }
  // Values of the file can be changed like any other key.
  const Job access = job_of(collection(table("a"), R"(, "batch_size": 4, "world_size": 2)"),
                            {"workload.tables[0].access={\"zipf\": 1.1}"});
  CHECK(access.workload.layered()->tables[0].access->exponent() == 1.1);
  // Without a dense part, a narrow one.
  CHECK(access.workload.layered()->top_mlp == std::vector<std::int64_t>{1});
}

TEST_CASE("TorchRec features, weights and data types stay with their table", "[config][torchrec]") {
  const std::string users = R"({"name": "users", "num_embeddings": 1000, "embedding_dim": 16,
                                "feature_names": ["viewer", "author", "friends"])";
  const std::string file = collection(
      users + R"(, "data_type": "INT8"}, )" + table("items", R"(, "data_type": "FP32")"),
      R"(, "embedding_collection": {"tables": [)" + table("s", R"(, "data_type": "BF16")") + R"(]},
         "constraints": {"users": {"pooling_factors": [1, 2.5, 40], "num_poolings": [1, 1.0, 1],
                                   "is_weighted": true, "batch_sizes": [4, 4, 4]}},
         "batch_size": 4, "world_size": 8, "local_world_size": 8)");
  const Job job = job_of(file);
  const LayeredWorkload& w = *job.workload.layered();
  REQUIRE(w.tables.size() == 3);
  REQUIRE(w.tables[0].feature_count() == 3);
  CHECK(w.tables[0].features[2].name == "friends");
  CHECK(w.tables[0].features[1].pooling == 2.5);
  CHECK(w.tables[0].pooling == 43.5);  // lookups of all features
  CHECK(w.tables[0].output_columns() == 48);
  CHECK(w.tables[0].weighted);
  CHECK(!w.tables[1].weighted);
  CHECK(job.row_format(w.tables[0]) == Format::kInt8Row);
  CHECK(job.row_format(w.tables[1]) == Format::kFp32);
  CHECK(job.row_format(w.tables[2]) == Format::kBf16);
  // Jobs that were read are written, and read again.
  const Job again = job_of(config::job_to_json(job), {"system=dgx-h100"});
  CHECK(config::job_to_json(again) == config::job_to_json(job));
  CHECK_THAT(
      rejection(collection(users + "}", R"(, "constraints": {"users": {"pooling_factors": [1]}})")),
      Contains("pooling_factors") && Contains("expected 3"));
  CHECK_THAT(rejection(collection(users + "}",
                                  R"(, "constraints": {"users": {"num_poolings": [1, 2, 1]}})")),
             Contains("num_poolings") && Contains("not modelled"));
  CHECK_THAT(rejection(R"({"embedding_collection": {"is_weighted": true, "tables": [)" +
                       table("s") + "]}}"),
             Contains("is_weighted") && Contains("not pooled"));
  CHECK_THAT(rejection(collection(table("a"), R"(, "local_world_size": 4)")),
             Contains("devices_per_machine") && Contains("system.host.devices=4"));
}

TEST_CASE("TorchRec constraints bound the plan of their table", "[config][torchrec]") {
  const auto constrained = [](const std::string& of_a) {
    return collection(table("a"), R"(, "constraints": {"a": )" + of_a + "}");
  };
  const Job job = job_of(
      constrained(
          R"({"sharding_types": ["row_wise", "ShardingType.COLUMN_WISE", "grid_shard", "data_parallel"],
          "compute_kernels": ["fused", "fused_uvm_caching"], "min_partition": 8})"),
      {"batch.global=8"});
  REQUIRE(job.plan_constraints.size() == 1);
  const TableConstraint& c = job.plan_constraints.front();
  CHECK(c.table == "a");
  // data_parallel runs with kernel dense, which the list leaves out.
  CHECK(std::set<ShardingKind>(c.shardings.begin(), c.shardings.end()) ==
        std::set<ShardingKind>{ShardingKind::kRowWise, ShardingKind::kColumnWise});
  CHECK(c.tiers == std::vector<std::string>{"hbm", "ddr"});
  CHECK(c.cached == true);
  CHECK(c.narrowest == 8);
  const Job again = job_of(config::job_to_json(job));
  CHECK(config::job_to_json(again) == config::job_to_json(job));
  const Job dense = job_of(constrained(R"({"compute_kernels": ["dense"]})"), {"batch.global=8"});
  CHECK(dense.plan_constraints.front().shardings ==
        std::vector<ShardingKind>{ShardingKind::kDataParallel});
  for (const auto& [of_a, why] : std::vector<std::pair<std::string, std::string>>{
           {R"({"sharding_types": ["diagonal"]})", "found \"diagonal\""},
           {R"({"sharding_types": ["grid_shard"]})", "not searched"},
           {R"({"sharding_types": ["row_wise"], "compute_kernels": ["dense"]})", "allows none"},
           {R"({"compute_kernels": ["key_value"]})", "found \"key_value\""},
           {R"({"compute_kernels": ["dense", "fused_uvm"]})", "add fused"},
           {R"({"cache_params": {"load_factor": 0.1}})", "cache_params"},
           {R"({"enforce_hbm": true})", "enforce_hbm"},
           {R"({"output_dtype": "FP16"})", "all_to_all_forward"}}) {
    CHECK_THAT(rejection(constrained(of_a)), Contains(why) && Contains("constraints.a"));
  }
  // In a job of ours.
  const auto ours = [](const std::string& constraints) {
    return rejection(R"({"workload": "rm1", "embedding": {"constraints": )" + constraints + "}}");
  };
  CHECK_THAT(ours(R"({"t9": {}})"), Contains("no table \"t9\""));
  CHECK_THAT(ours(R"({"t1": {"memory": ["tape"]}})"), Contains("no tier \"tape\""));
  CHECK_THAT(ours(R"({"t1": {"sharding": []}})"), Contains("embedding.constraints.t1.sharding"));
}

TEST_CASE("features, formats and weights of a table in a workload of ours", "[config]") {
  const auto with = [](const std::string& keys) {
    return R"({"workload": {"kind": "dlrm", "name": "w", "dense_features": 4, "bottom_mlp": [8],
      "interaction": {"kind": "cat"}, "top_mlp": [1], "default_batch": {"global": 8},
      "tables": [{"name": "a", "rows": 100, "dim": 8)" +
           keys + "}]}}";
  };
  const Job job =
      job_of(with(R"(, "pooling": 3, "features": 4, "format": "fp16", "weighted": true)"));
  const EmbeddingTable& t = job.workload.layered()->tables.front();
  CHECK(t.feature_count() == 4);
  CHECK(t.pooling == 12);
  CHECK(t.format == Format::kFp16);
  CHECK(t.weighted);
  CHECK(config::job_to_json(job_of(config::job_to_json(job))) == config::job_to_json(job));
  CHECK_THAT(rejection(with(R"(, "pooling": 3, "features": [{"name": "x"}])")),
             Contains("tables[0].features") && Contains("its own pooling"));
  CHECK_THAT(rejection(with(R"(, "features": 2,
      "access": {"zipf": 1, "session": {"samples": 4, "keep": 0.5}})")),
             Contains("tables[0].features") && Contains("session"));
  CHECK_THAT(rejection(with(R"(, "mode": "sequence", "weighted": true)")),
             Contains("tables[0].weighted") && Contains("mode sum"));
  CHECK_THAT(rejection(with(R"(, "format": "fp64")")), Contains("tables[0].format"));
}

TEST_CASE("DeepRecSys configurations are read, or refused by their model", "[config][deeprecsys]") {
  const auto file = [](const std::string& type) {
    return R"({"arch_mlp_bot": "128-64-32", "arch_mlp_top": "256-64-1",
      "arch_embedding_size": "4000000-300", "arch_sparse_feature_size": 32,
      "num_indices_per_lookup_fixed": true, "num_indices_per_lookup": 80,
      "arch_interaction_op": "cat", "model_name": "rm1", "model_type": ")" +
           type + "\"}";
  };
  const Job job = job_of(file("dlrm"), {"batch.global=64"});
  const LayeredWorkload& w = *job.workload.layered();
  CHECK(job.workload.name == "rm1");
  CHECK(w.dense_features == 128);
  CHECK(w.bottom_mlp == std::vector<std::int64_t>{64, 32});
  CHECK(w.top_mlp == std::vector<std::int64_t>{256, 64, 1});
  REQUIRE(w.tables.size() == 2);
  CHECK(w.tables[1].rows == 300);
  CHECK(w.tables[0].dim == 32);
  CHECK(w.tables[0].pooling == 80);
  CHECK(interop::describes_model(config::text_source(file("dlrm"), "")));
  CHECK_THAT(rejection(file("dcn")), Contains("model_type") && Contains("wnd"));
}

TEST_CASE("the published DeepRecSys files are read, rm1 to rm3 as the zoo has them",
          "[config][deeprecsys]") {
  const std::filesystem::path folder =
      std::filesystem::path(STEPCAST_SHARED_DATA) / "dlrm" / "deeprecsys";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: no " << folder);
    return;
  }
  for (const std::string name : {"rm1", "rm2", "rm3"}) {
    const Workload read =
        config::load_workload((folder / ("dlrm_" + name + ".json")).string(), kLibrary);
    const Workload zoo = config::load_workload(name, kLibrary);
    const LayeredWorkload& a = *read.layered();
    const LayeredWorkload& b = *zoo.layered();
    CHECK(a.bottom_mlp == b.bottom_mlp);
    CHECK(a.top_mlp == b.top_mlp);
    CHECK(a.dense_features == b.dense_features);
    CHECK(a.interaction.kind == b.interaction.kind);
    REQUIRE(a.tables.size() == b.tables.size());
    for (std::size_t t = 0; t < a.tables.size(); ++t) {
      CHECK(a.tables[t].rows == b.tables[t].rows);
      CHECK(a.tables[t].dim == b.tables[t].dim);
      CHECK(a.tables[t].pooling == b.tables[t].pooling);
    }
  }
  // Multiply-adds of a sample by hand, tables apart. MT-WnD: [512 + 43 x 32] x 1024 + 1024 x 512,
  // and one task of 512 x 256 + 256 x 128. NCF: 128 x 256 + 256 x 256 + 256 x 128 + 128 x 64 and
  // (64 + 64) x 64. DIN: 250 units of 96 x 1 + 1 x 32, and 128 x 200 + 200 x 80 + 80 x 2.
  const auto multiply_adds = [&](const char* name, std::size_t tables) {
    const Workload read =
        config::load_workload((folder / (std::string(name) + ".json")).string(), kLibrary);
    CHECK(read.layered()->tables.size() == tables);
    return forward_flops(layers_of(*read.layered())) / 2;
  };
  CHECK(multiply_adds("wide_and_deep", 27) ==
        (512 + 27 * 32) * 1024 + 1024 * 512 + 512 * 256 + 256);
  CHECK(multiply_adds("mtwnd", 43) == (512 + 43 * 32) * 1024 + 1024 * 512 + 512 * 256 + 256 * 128);
  CHECK(multiply_adds("ncf", 4) == 128 * 256 + 256 * 256 + 256 * 128 + 128 * 64 + (64 + 64) * 64);
  CHECK(multiply_adds("din", 253) == 250 * (96 + 32) + 128 * 200 + 200 * 80 + 80 * 2);
  // 40 behaviours: 32 -> 64, 64 x 64 of the state in both layers, 64 x 64 of the weights and in.
  CHECK(multiply_adds("dien", 43) ==
        40 * (32 * 64 + 4 * 64 * 64) + (64 + 96) * 200 + 200 * 80 + 80 * 2);
}

TEST_CASE("a collection stands where a workload stands", "[config][torchrec]") {
  const fixtures::Folder folder;
  const std::string file =
      folder.file("tables.json", collection(table("a"), R"(, "batch_size": 4, "world_size": 2)"));
  const Job job = config::load_job(
      config::text_source(R"({"workload": ")" + file + R"(", "system": "dgx-h100"})", "j"), {},
      kLibrary);
  CHECK(job.batch.global == 8);
  CHECK(interop::describes_model(config::text_source(collection(table("a")), "")));
  const std::string json =
      interop::import_to_json(config::text_source(collection(table("a")), "ebc.json"));
  CHECK(job_of(json, {"batch.global=8"}).workload.layered()->tables.size() == 1);
  folder.file("tables.json", collection(table("a"), R"(, "local_world_size": 8)"));
  CHECK_THROWS_WITH(config::load_workload(file, kLibrary),
                    Contains("devices_per_machine") && Contains("give this file as the job"));
}

TEST_CASE("tables that no command can use are not shown either", "[config][torchrec]") {
  const std::string twice = collection(table("a") + "," + table("a"));
  CHECK_THAT(rejection(twice),
             Contains("tables[1].name") && Contains("plans need names that differ"));
  CHECK_THROWS_WITH(interop::import_to_json(config::text_source(twice, "ebc.json")),
                    Contains("tables[1].name") && Contains("plans need names that differ"));
}

TEST_CASE("HugeCTR tables are a job", "[config][hugectr]") {
  const Job job = job_of(R"({
    "solver": {"batchsize": 65536, "vvgpu": [[0, 1], [0, 1]], "use_mixed_precision": true, "lr": 1},
    "embedding_tables": [
      {"name": "a", "max_vocabulary_size": 500, "ev_size": 8, "nnz_per_slot": 3},
      {"name": "b", "max_vocabulary_size": 70, "ev_size": 16, "combiner": "concat"}]})");
  const LayeredWorkload& w = *job.workload.layered();
  CHECK(w.tables[0].pooling == 3);
  CHECK(w.tables[0].mode == PoolingMode::kSum);
  CHECK(w.tables[1].mode == PoolingMode::kSequence);
  CHECK(job.devices == 4);
  CHECK(job.batch.global == 65536);
  CHECK(job.formats.all_to_all_forward == Format::kFp16);
  CHECK(job.formats.embedding == Format::kFp32);
}

TEST_CASE("what docs/reference/table-files.md shows can be loaded", "[config][docs]") {
  std::ifstream in(std::filesystem::path(STEPCAST_SOURCE_DIR) / "docs/reference/table-files.md");
  REQUIRE(in);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::string fence = "```json\n";
  int shown = 0;
  for (std::size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at)) {
    at += fence.size();
    CHECK_NOTHROW(job_of(page.substr(at, page.find("```", at) - at)));
    ++shown;
  }
  CHECK(shown == 1);
}

TEST_CASE("what a table description cannot mean is refused with its place",
          "[config][torchrec][hugectr]") {
  CHECK_THAT(rejection(collection(R"({"name": "a", "embedding_dim": 16})")),
             Contains("embedding_bag_collection.tables[0].num_embeddings"));
  CHECK_THAT(rejection(collection(table("a", R"(, "pooling": "MAX")"))),
             Contains("tables[0].pooling") && Contains("SUM or MEAN"));
  CHECK_THAT(rejection(collection(table("a", R"(, "data_type": "INT4")"))), Contains("data_type"));
  CHECK_THAT(rejection(collection(table("a", R"(, "dims": 3)"))), Contains("dims"));
  CHECK_THAT(rejection(collection(table("a"), R"(, "constraints": {"b": {}})")),
             Contains("constraints.b") && Contains("\"a\""));
  CHECK_THAT(rejection(collection(table("a"), R"(, "batch_size": 4)")), Contains("world_size"));
  CHECK_THAT(rejection(collection(table("a"), R"(, "dense_in_features": 4)")),
             Contains("dense_arch_layer_sizes"));
  CHECK_THAT(rejection(R"({"embedding_tables": []})"), Contains("embedding_tables"));
  CHECK_THAT(
      rejection(R"({"embedding_tables": [{"name": "a", "max_vocabulary_size": 5, "ev_size": 4}],
                         "solver": {"overlap": true}})"),
      Contains("solver.overlap"));
}
