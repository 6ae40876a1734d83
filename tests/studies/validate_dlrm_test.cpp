#include "studies/validate_dlrm.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/error.h"
#include "workloads/embedding_plan.h"
#include "workloads/embedding_plan_hugectr.h"

using namespace stepcast;
using namespace stepcast::studies;

namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};
const std::filesystem::path kData = std::filesystem::path(STEPCAST_SHARED_DATA) / "dlrm";

constexpr const char* kHeader =
    "round,org,system,benchmark,gpus,nodes,gpu,global_batch,runs,step_ms_median,step_ms_min_run,"
    "step_ms_max_run,run_seconds_median\n";
constexpr const char* kNvidia =
    "v2.1,NVIDIA,dgx,dlrm,8,1,NVIDIA A100-SXM4-80GB,55296,5,1.5,1.4,1.6,100\n";

std::vector<DlrmStepTime> rows_of(const std::string& text) {
  const auto file = std::filesystem::temp_directory_path() /
                    ("stepcast-dlrm-rows-" + std::to_string(getpid()) + ".csv");
  std::ofstream(file) << text;
  auto rows = read_dlrm_step_times(file);
  std::filesystem::remove(file);
  return rows;
}

}  // namespace

TEST_CASE("step times are read with their place, bad ones kept as unusable", "[studies][dlrm]") {
  const auto rows =
      rows_of(std::string(kHeader) + kNvidia +
              "v2.1,X,y,dlrm,8,1,NVIDIA A100-SXM4-80GB,55296,5,-1.5,1.4,1.6,100\n"
              "v2.1,X,y,dlrm,eight,1,NVIDIA A100-SXM4-80GB,55296,5,1.5,1.4,1.6,100\n");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].seconds == Approx(1.5e-3));
  CHECK(rows[0].spread == Approx(0.2 / 1.5));
  CHECK(rows[0].unusable.empty());
  CHECK(rows[1].unusable == "step_ms_median: found '-1.5', expected a positive number");
  CHECK(rows[2].unusable == "gpus: found 'eight', expected a positive number");
  CHECK(rows[2].place.find(".csv:4") != std::string::npos);
  CHECK_THROWS_AS(rows_of("a,b\n1,2\n"), InputError);
  CHECK_THROWS_AS(rows_of(kHeader), InputError);
}

TEST_CASE("rows that cannot be predicted are listed with the reason", "[studies][dlrm]") {
  const auto suite =
      validate_dlrm(rows_of(std::string(kHeader) + kNvidia +
                            "v2.1,A,a,dlrm,8,1,NVIDIA Z9000,55296,5,1.5,1.4,1.6,100\n"
                            "v2.1,B,b,bert,8,1,NVIDIA A100-SXM4-80GB,55296,5,1.5,1.4,1.6,100\n"
                            "v2.1,C,c,dlrm,8,1,NVIDIA A100-SXM4-80GB,55297,5,1.5,1.4,1.6,100\n"
                            "v2.1,D,d,dlrm,8,1,NVIDIA A100-SXM4-80GB,55296,5,0,1.4,1.6,100\n"
                            "v2.1,E,e,dlrm,8,1,NVIDIA A100-SXM4-80GB,51200,5,1.41,1.4,1.42,100\n"),
                    kLibrary);
  REQUIRE(suite.rows.size() == 6);
  CHECK(suite.rows[0].skipped->find("gives the scalar of v2.1") == 0);
  CHECK(suite.rows[0].predicted == Approx(suite.rows[0].measured));
  CHECK(suite.rows[1].skipped->find("NVIDIA Z9000") != std::string::npos);
  CHECK(suite.rows[2].skipped->find("expected dlrm or dlrm_dcnv2") != std::string::npos);
  CHECK(suite.rows[3].skipped->find("55297") != std::string::npos);
  CHECK(suite.rows[4].skipped->find(":6: step_ms_median: found '0'") != std::string::npos);
  CHECK_FALSE(suite.rows[5].skipped);
  REQUIRE(suite.groups.front().name == "one scalar per round");
  CHECK(suite.groups.front().errors.n == 1);
  CHECK(suite.groups.front().skipped == 4);  // GPU, benchmark, batch, time
  // A constant rate says 1.5 ms * 51200 / 55296 = 1.3889 ms; measured 1.41.
  CHECK(suite.groups.front().baseline_mean == Approx(1 - 1.388889 / 1.41).epsilon(1e-4));
}

TEST_CASE("HugeCTR's plan of the MLPerf tables", "[studies][dlrm][plan]") {
  DlrmStepTime row;
  row.round = "v3.1";
  row.benchmark = "dlrm_dcnv2";
  row.gpu = "NVIDIA H100-SXM5-80GB";
  row.gpus = 8;
  row.batch = 55296;
  const Job job = job_of(row, kLibrary);
  const EmbeddingPlan& plan = *job.embedding_plan;
  CHECK_NOTHROW(workloads::check_embedding_plan(job, plan, "plan"));
  std::size_t replicated = 0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const EmbeddingTable& table = job.workload.dlrm()->tables[t];
    const bool small = table.rows * table.dim * 4 < 8'000'000;  // below 8 MB of fp32 weights
    const bool is_replicated =
        plan.tables[t].shards.front().sharding == ShardingKind::kDataParallel;
    CHECK(small == is_replicated);
    replicated += is_replicated ? 1 : 0;
    // 100 of the 214 lookups: far above a rank's share of 214 / 8, so its rows are split.
    if (table.pooling == 100) {
      CHECK(plan.tables[t].shards.front().sharding == ShardingKind::kRowWise);
    }
  }
  CHECK(replicated == 15);
}

TEST_CASE("MLPerf DLRM step times", "[studies][dlrm][accuracy]") {
  if (!std::filesystem::exists(kData)) {
    WARN("skipped: " << kData << " is not there");
    return;
  }
  const auto suite = validate_dlrm(read_dlrm_step_times(kData), kLibrary);
  CHECK(suite.rows.size() == 7 + 45);
  for (const auto& g : suite.groups) {
    std::cout << g.name << ": n " << g.errors.n << " median " << g.errors.median << " mean "
              << g.errors.mean << " geomean " << g.errors.geomean << " p90 " << g.errors.p90
              << " worst " << g.errors.worst << " (" << g.worst_row << ") bias " << g.errors.bias
              << " naive " << g.baseline_mean << '\n';
  }
  for (const auto& n : suite.notes) {
    std::cout << n << '\n';
  }
  CHECK(suite.pass);
  CHECK(suite.groups.front().errors.n == 5);
  CHECK(suite.groups.front().errors.mean <= 0.10);
}
