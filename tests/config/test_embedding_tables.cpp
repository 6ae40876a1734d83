// Tables of TorchRec collections and of HugeCTR as workloads and jobs.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "core/config/config.h"
#include "core/config/import.h"
#include "core/error.h"

using namespace stepcast;
using Catch::Matchers::Contains;

namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

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

std::string refusal(const std::string& text) {
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
  const DlrmWorkload& w = *job.workload.dlrm();
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
  CHECK(job.formats.embedding == Format::kFp16);
  // What the file says can be changed like any other key.
  const Job access = job_of(collection(table("a"), R"(, "batch_size": 4, "world_size": 2)"),
                            {"workload.tables[0].access={\"zipf\": 1.1}"});
  CHECK(access.workload.dlrm()->tables[0].access->exponent() == 1.1);
  // Without a dense part, a narrow one.
  CHECK(access.workload.dlrm()->top_mlp == std::vector<std::int64_t>{1});
}

TEST_CASE("a collection stands where a workload stands", "[config][torchrec]") {
  const auto file = std::filesystem::temp_directory_path() /
                    ("stepcast_tables_" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << collection(table("a"), R"(, "batch_size": 4, "world_size": 2)");
  const Job job = config::load_job(
      config::text_source(R"({"workload": ")" + file.string() + R"(", "system": "dgx-h100"})", "j"),
      {}, kLibrary);
  CHECK(job.batch.global == 8);
  CHECK(config::foreign_kind(collection(table("a"))) == config::Foreign::kEmbeddingTables);
  const std::string json =
      config::import_to_json(config::text_source(collection(table("a")), "ebc.json"));
  CHECK(job_of(json, {"batch.global=8"}).workload.dlrm()->tables.size() == 1);
  std::ofstream(file) << collection(table("a", R"(, "data_type": "FP16")"));
  CHECK_THROWS_WITH(config::load_workload(file.string(), kLibrary),
                    Contains("give this file as the job itself"));
  std::filesystem::remove(file);
}

TEST_CASE("tables that no command can use are not shown either", "[config][torchrec]") {
  const std::string twice = collection(table("a") + "," + table("a"));
  CHECK_THAT(refusal(twice),
             Contains("tables[1].name") && Contains("plans need names that differ"));
  CHECK_THROWS_WITH(config::import_to_json(config::text_source(twice, "ebc.json")),
                    Contains("tables[1].name") && Contains("plans need names that differ"));
}

TEST_CASE("HugeCTR tables are a job", "[config][hugectr]") {
  const Job job = job_of(R"({
    "solver": {"batchsize": 65536, "vvgpu": [[0, 1], [0, 1]], "use_mixed_precision": true, "lr": 1},
    "embedding_tables": [
      {"name": "a", "max_vocabulary_size": 500, "ev_size": 8, "nnz_per_slot": 3},
      {"name": "b", "max_vocabulary_size": 70, "ev_size": 16, "combiner": "concat"}]})");
  const DlrmWorkload& w = *job.workload.dlrm();
  CHECK(w.tables[0].pooling == 3);
  CHECK(w.tables[0].mode == PoolingMode::kSum);
  CHECK(w.tables[1].mode == PoolingMode::kSequence);
  CHECK(job.devices == 4);
  CHECK(job.batch.global == 65536);
  CHECK(job.formats.all_to_all_forward == Format::kFp16);
  CHECK(job.formats.embedding == Format::kFp32);
}

TEST_CASE("what docs/embedding-inputs.md shows can be loaded", "[config][docs]") {
  std::ifstream in(std::filesystem::path(STEPCAST_SOURCE_DIR) / "docs/embedding-inputs.md");
  REQUIRE(in);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::string fence = "```json\n";
  int shown = 0;
  for (std::size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at)) {
    at += fence.size();
    CHECK_NOTHROW(job_of(page.substr(at, page.find("```", at) - at)));
    ++shown;
  }
  CHECK(shown == 2);
}

TEST_CASE("what a table description cannot mean is refused with its place",
          "[config][torchrec][hugectr]") {
  CHECK_THAT(refusal(collection(R"({"name": "a", "embedding_dim": 16})")),
             Contains("embedding_bag_collection.tables[0].num_embeddings"));
  CHECK_THAT(refusal(collection(table("a", R"(, "pooling": "MAX")"))),
             Contains("tables[0].pooling") && Contains("SUM or MEAN"));
  CHECK_THAT(refusal(collection(table("a", R"(, "data_type": "INT8")"))), Contains("data_type"));
  CHECK_THAT(refusal(collection(table("a", R"(, "data_type": "FP16")") + "," +
                                table("b", R"(, "data_type": "FP32")"))),
             Contains("tables[1].data_type") && Contains("one format"));
  CHECK_THAT(refusal(collection(table("a", R"(, "dims": 3)"))), Contains("dims"));
  CHECK_THAT(refusal(collection(R"({"name": "a", "num_embeddings": 5, "embedding_dim": 4,
                                   "feature_names": ["x", "y"]})")),
             Contains("table \"a\" serves 2 features"));
  CHECK_THAT(refusal(collection(table("a"), R"(, "constraints": {"b": {}})")),
             Contains("constraints.b") && Contains("\"a\""));
  CHECK_THAT(refusal(collection(table("a"),
                                R"(, "constraints": {"a": {"sharding_types": ["row_wise"]}})")),
             Contains("sharding_types") && Contains("not read"));
  CHECK_THAT(refusal(collection(table("a"), R"(, "batch_size": 4)")), Contains("world_size"));
  CHECK_THAT(refusal(collection(table("a"), R"(, "dense_in_features": 4)")),
             Contains("dense_arch_layer_sizes"));
  CHECK_THAT(refusal(R"({"embedding_tables": []})"), Contains("embedding_tables"));
  CHECK_THAT(
      refusal(R"({"embedding_tables": [{"name": "a", "max_vocabulary_size": 5, "ev_size": 4}],
                         "solver": {"overlap": true}})"),
      Contains("solver.overlap"));
}
