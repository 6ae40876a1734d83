#include "validation/dlrm.h"
#include "core/graph/op.h"
#include "core/graph/program.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "tests/folder.h"
#include "tests/validation/suites.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/plan_hugectr.h"
#include "workloads/embedding_plan/plan_rules.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::validation;

namespace {

const config::Library kLibrary{STEPCAST_SOURCE_DIR};
const std::filesystem::path kData = std::filesystem::path(STEPCAST_SHARED_DATA) / "dlrm";

constexpr const char* kHeader =
    "round,org,system,benchmark,gpus,nodes,gpu,global_batch,runs,step_ms_median,step_ms_min_run,"
    "step_ms_max_run,run_seconds_median\n";
constexpr const char* kNvidia =
    "v2.1,NVIDIA,dgx,dlrm,8,1,NVIDIA A100-SXM4-80GB,55296,5,1.5,1.4,1.6,100\n";

std::vector<DlrmStepTime> rows_of(const std::string& text) {
  return read_dlrm_step_times(fixtures::Folder().file("rows.csv", text));
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

namespace {

DlrmStepTime submission(const char* gpu, std::int64_t gpus, std::int64_t batch) {
  DlrmStepTime row;
  row.round = "v4.1";
  row.benchmark = "dlrm_dcnv2";
  row.gpu = gpu;
  row.gpus = gpus;
  row.batch = batch;
  return row;
}

}  // namespace

TEST_CASE("HugeCTR's plan of the MLPerf tables on one machine", "[studies][dlrm][plan]") {
  const Job job = job_of(submission("NVIDIA H100-SXM5-80GB", 8, 55296), kLibrary);
  const EmbeddingPlan& plan = *job.embedding_plan;
  CHECK_NOTHROW(workloads::check_embedding_plan(job, plan, "plan"));
  std::size_t replicated = 0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const EmbeddingTable& table = job.workload.layered()->tables[t];
    const bool small = table.rows * table.dim * 4 < 8'000'000;  // below 8 MB of fp32 weights
    const std::vector<PlanShard>& shards = plan.tables[t].shards;
    const bool is_replicated = shards.front().sharding == ShardingKind::kDataParallel;
    CHECK(small == is_replicated);
    replicated += is_replicated ? 1 : 0;
    // 198 lookups over 8 ranks are 25 a rank. Tables of 100 and 27 lookups are above that whole:
    // four parts of 25 and two of 13.5 are not.
    const std::size_t parts = table.pooling == 100 ? 4 : table.pooling == 27 ? 2 : 1;
    CHECK(shards.size() == parts);
    std::set<std::int32_t> ranks;
    std::int64_t rows = 0;
    for (const PlanShard& shard : shards) {
      ranks.insert(shard.groups.front().front());
      rows += shard.rows[1] - shard.rows[0];
    }
    CHECK(ranks.size() == parts);
    CHECK(rows == table.rows);
  }
  CHECK(replicated == 15);
}

TEST_CASE("HugeCTR's settings are those of its submissions", "[studies][dlrm][plan]") {
  const auto rule = [](const char* gpu, std::int64_t gpus) {
    return workloads::hugectr_rule(job_of(submission(gpu, gpus, 135168), kLibrary));
  };
  // MEM_COMM_BW_RATIO of config_DGXH100_1x8x6912.sh, config_DGXH200_1x8x6912.sh,
  // config_G894-AD1_1x8x6912.sh and config_DGXH100_16x8x1056.sh.
  CHECK(rule("NVIDIA H100-SXM5-80GB", 8).memory_over_link == 7);
  CHECK(rule("NVIDIA H200-SXM5-141GB", 8).memory_over_link == 11);
  CHECK(rule("NVIDIA Blackwell GPU (B200-SXM-180GB)", 8).memory_over_link == 9);
  CHECK(rule("NVIDIA H100-SXM5-80GB", 128).memory_over_link == 67);
  CHECK(rule("NVIDIA H100-SXM5-80GB", 8).members == 1);
  CHECK(rule("NVIDIA H100-SXM5-80GB", 128).members == 8);
  CHECK(rule("NVIDIA H100-SXM5-80GB", 128).replicated_below.base() == 12.5e6);
  // Parts go to whole machines.
  const Job job = job_of(submission("NVIDIA H100-SXM5-80GB", 128, 135168), kLibrary);
  CHECK_NOTHROW(workloads::check_embedding_plan(job, *job.embedding_plan, "plan"));
  for (const PlanTable& table : job.embedding_plan->tables) {
    for (const PlanShard& shard : table.shards) {
      const auto& ranks = shard.groups.front();
      CHECK((ranks.size() == 128 || (ranks.size() == 8 && ranks.front() % 8 == 0)));
    }
  }
}

TEST_CASE("a HugeCTR step updates in one launch and sends ids of 32 bits", "[studies][dlrm]") {
  const auto graph =
      workloads::build_graph(job_of(submission("NVIDIA H100-SXM5-80GB", 8, 55296), kLibrary));
  for (const Program& program : graph.programs) {
    int optimizers = 0;
    int biases = 0;
    int arranged = 0;
    for (const Op& op : program.ops) {
      optimizers += op.kind == OpKind::kOptimizer ? 1 : 0;
      biases += op.kind == OpKind::kBiasActivationForward ? 1 : 0;
      if (op.kind == OpKind::kOptimizer) {
        // Dense parameters: bottom 13-512-256-128, three cross layers of 3,456 with rank 512, top
        // 3456-1024-1024-512-256-1, biases: 171,392 + 10,627,200 + 5,245,953 = 16,044,545. Each
        // reads 2 bytes of gradient, 4 of the number and 4 of its state.
        CHECK(op.bytes_read.base() >= 10.0 * 16'044'545);
        CHECK(op.bytes_read.base() < 10.0 * (16'044'545 + 15 * 2'000'000));  // tables below 8 MB
      }
      const std::string name(program.name(op));
      arranged += name.ends_with(".arrange") ? 1 : 0;
      if (name == "ids.all_to_all") {
        CHECK(op.format == Format::kInt32);
      }
    }
    CHECK(optimizers == 1);
    CHECK(biases == 0);
    CHECK(arranged >= 2);  // on arrival and of gradients
  }
}

TEST_CASE("multi-hot data spread an id over its list", "[studies][dlrm]") {
  const Access one_hot = Access::zipf(100'000, 1.05);
  const Access law = multi_hot_access(one_hot, 10, 1e6);
  // A list is looked up as often as its id: ten rows share the hottest id's lookups.
  CHECK(law.probability(0) == Approx(one_hot.probability(0) / 10).epsilon(1e-3));
  CHECK(law.cdf(10).value == Approx(one_hot.probability(0)).epsilon(1e-3));
  CHECK(law.cdf(1000).value == Approx(one_hot.cdf(100).value).epsilon(2e-2));
  // 1,000 samples have as many distinct lists as ids, of ten rows each.
  CHECK(law.unique(10'000).value == Approx(10 * one_hot.unique(1000).value).epsilon(0.05));
  CHECK(multi_hot_access(one_hot, 1, 1e6).exponent() == one_hot.exponent());
}

TEST_CASE("one scalar comes from the other generations of GPUs", "[studies][dlrm]") {
  const std::string h100 = "v4.1,A,a,dlrm_dcnv2,8,1,NVIDIA H100-SXM5-80GB,55296,5,3.6,3.5,3.7,1\n";
  const std::string h200 = "v4.1,B,b,dlrm_dcnv2,8,1,NVIDIA H200-SXM5-141GB,55296,5,3.3,3.2,3.4,1\n";
  const auto rows = rows_of(kHeader + h100 + h200);
  const auto bare = validate_dlrm(rows, kLibrary, DlrmRegime::kModels);
  const auto suite = validate_dlrm(rows, kLibrary);
  // With two rows each is predicted with what the other took longer than its prediction.
  CHECK(suite.rows[0].predicted ==
        Approx(bare.rows[0].predicted * 3.3e-3 / bare.rows[1].predicted));
  CHECK(suite.rows[1].predicted ==
        Approx(bare.rows[1].predicted * 3.6e-3 / bare.rows[0].predicted));
  REQUIRE(suite.groups.front().name == "generations left out");
  CHECK(suite.groups.front().errors.n == 2);
  // The naive predictor: 3.3 ms * 4.8 / 3.35 TB/s = 4.7284 ms and 3.6 * 3.35 / 4.8 = 2.5125 ms.
  CHECK(suite.groups.front().baseline_mean ==
        Approx((4.728358 / 3.6 - 1 + 1 - 2.5125 / 3.3) / 2).epsilon(1e-4));
}

TEST_CASE("MLPerf DLRM step times", "[studies][dlrm][accuracy]") {
  if (!std::filesystem::exists(kData)) {
    WARN("skipped: " << kData << " is not there");
    return;
  }
  const auto suite = validate_dlrm(read_dlrm_step_times(kData), kLibrary);
  CHECK(suite.rows.size() == 7 + 26 + 45);
  // docs/accuracy/kernels.md: median 8 % and bias 4 % are met; the worst, 20 %, is missed on 128
  // GPUs.
  const auto& generations = suite.groups.front();
  REQUIRE(generations.name == "generations left out");
  CHECK(generations.errors.n == 26);
  CHECK(generations.errors.median <= 0.08);
  CHECK(std::abs(generations.errors.bias) <= 0.04);
  CHECK(generations.errors.worst <= 0.33);
  CHECK(generations.errors.mean < generations.baseline_mean / 2);
  // At the efficiency that the other generations show, Ampere by its one-hot rounds: worse than the
  // 5, 15 and 3 % that were wished for.
  const auto& printed = validation::testing::group(suite, "hugectr, generations left out").errors;
  CHECK(printed.n == 7 + 26);
  CHECK(printed.median <= 0.10);
  CHECK(printed.worst <= 0.25);
  CHECK(std::abs(printed.bias) <= 0.05);
  const ErrorStatistics& rounds = validation::testing::group(suite, "one scalar per round").errors;
  CHECK(rounds.n == 5);
  CHECK(rounds.mean <= 0.10);
}
