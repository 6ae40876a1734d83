// Parts of a recommender's step cost the same in a plan's price and in its simulation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/config/config.h"
#include "core/job/efficiency.h"
#include "core/job/tier_units.h"
#include "models/cost_model.h"
#include "planner/embedding/embedding_prices.h"
#include "studies/plan/plan.h"
#include "studies/predict/predict.h"

using namespace stepcast;

namespace {

Job loaded(const std::string& job, const std::vector<std::string>& set = {}) {
  return config::load_job(config::text_source(job, "test"), set, {STEPCAST_SOURCE_DIR});
}

double seconds_of(const Job& job, std::string_view kind) {
  const studies::StepPrediction p = studies::predict(job);
  const auto found = std::find_if(p.by_kind.begin(), p.by_kind.end(),
                                  [kind](const auto& k) { return k.name == kind; });
  REQUIRE(found != p.by_kind.end());
  return found->time.base();
}

/// One table of 200 M rows x 128 in the memory of the host, without a cache.
Job rows_in_host_memory() {
  return loaded(R"({"stepcast": 1, "system": "dgx-a100-80gb", "devices": 1,
    "batch": {"global": 65536}, "formats": {"compute": "fp32"},
    "workload": {"kind": "dlrm", "name": "uvm", "dense_features": 4, "bottom_mlp": [16],
      "interaction": {"kind": "cat"}, "top_mlp": [8, 1],
      "tables": [{"name": "t", "rows": 200000000, "dim": 128, "pooling": 8, "mode": "sum",
                  "access": {"uniform": true}}]},
    "embedding": {"plan": {"stepcast": 1, "kind": "embedding", "workload": "uvm",
      "system": "dgx-a100-80gb", "devices": 1, "tables": [{"name": "t", "shards": [
        {"rows": [0, 200000000], "columns": [0, 128], "sharding": "table_wise", "tier": "ddr",
         "groups": [[0]], "split": "block"}]}]}}})");
}

/// One sequence table of 1 M rows x 512, a copy on each of eight devices.
Job copies(const std::string& optimizer) {
  return loaded(R"({"stepcast": 1, "system": "dgx-h100", "devices": 8, "batch": {"global": 8192},
    "workload": {"kind": "dlrm", "name": "dp", "dense_features": 8, "bottom_mlp": [512],
      "interaction": {"kind": "cat"}, "top_mlp": [64, 1],
      "tables": [{"name": "t", "rows": 1000000, "dim": 512, "pooling": 2048, "mode": "sequence",
                  "access": {"zipf": 0.8, "seed": 1}}]},
    "embedding": {"constraints": {"t": {"sharding": ["data_parallel"]}}}})",
                {"optimizer.dense=sgd", "optimizer.embedding=" + optimizer});
}

}  // namespace

TEST_CASE("a device reads slower memory over its own link, however few devices do",
          "[studies][plan][tiers]") {
  const Job job = rows_in_host_memory();
  // 524,288 lookups of 200 M rows alike: all but 0.13 % distinct, each 512 bytes and 4 of state.
  const double bytes = 2e8 * (1 - std::exp(-524288 / 2e8)) * 516;
  const Tier tier = *tier_named(job.system, "ddr");
  REQUIRE(link_of_device(tier).base() == 128e9 / 8);
  const double fetch = seconds_of(job, "tier_fetch");
  CHECK(fetch == Approx(bytes / 16e9).epsilon(1e-3));  // 16.9 ms
  const models::CostModel model(job.system, job.calibration);
  const planner::EmbeddingPrices prices(job, model);
  CHECK(prices.tier_move(tier, bytes) == Approx(fetch).epsilon(1e-3));
}

TEST_CASE("copies under row-wise Adagrad move one number of state a row", "[studies][plan]") {
  Job job = copies("sgd");
  job.embedding_choice = "data_parallel";
  const double sgd = seconds_of(job, "optimizer");
  job.embedding_optimizer = OptimizerKind::kRowwiseAdagrad;
  // An element: 8 bytes read, 4 written; a row of 512: 4 more of each.
  CHECK(seconds_of(job, "optimizer") == Approx(sgd * (1 + 8.0 / (12 * 512))).epsilon(5e-3));
  job.embedding_optimizer = OptimizerKind::kAdagrad;
  CHECK(seconds_of(job, "optimizer") == Approx(sgd * 5 / 3).epsilon(2e-2));
}

TEST_CASE("the sum of large copies' gradients costs a plan what it takes", "[studies][plan]") {
  Job job = copies("rowwise_adagrad");
  const studies::PlanReport report = studies::plan(job, {});
  REQUIRE_FALSE(report.plans.empty());
  const EmbeddingPlan& plan = report.plans.front().plan;
  CHECK(plan.predicted_step >= plan.lower_bound);
  CHECK(plan.gap < 0.05);
  CHECK(report.plans.front().objective < plan.predicted_step);
}

TEST_CASE("recommenders on a framework step as its runs do, in forecasts and in plans",
          "[studies][plan][frameworks]") {
  const std::vector<std::string> set{"workload=mlperf-dlrm-v2", "system=dgx-b200", "devices=8",
                                     "batch.global=55296"};
  CHECK_FALSE(efficiency_of(loaded("{}", set)));
  std::vector<std::string> on = set;
  on.emplace_back("framework=hugectr");
  const Job job = loaded("{}", on);
  const auto efficiency = efficiency_of(job);
  REQUIRE(efficiency);
  CHECK(efficiency->own);
  CHECK(efficiency->factor > 1.1);  // eight B200: 2.15 to 2.2 ms measured, 1.89 simulated
  CHECK(efficiency->factor < 1.2);
  const studies::StepPrediction p = studies::predict(job);
  CHECK(p.iteration.base() == Approx(p.hardware.base() * efficiency->factor));
  REQUIRE(p.interval);
  CHECK(p.interval->p5 < p.iteration);
  CHECK(p.interval->p95 > p.iteration);
  studies::PlanOptions quick;
  quick.effort = studies::PlanEffort::kQuick;
  const studies::PlanReport report = studies::plan(job, quick);
  REQUIRE_FALSE(report.plans.empty());
  Job planned = job;
  planned.embedding_plan = report.plans.front().plan;
  CHECK(report.plans.front().plan.predicted_step ==
        Approx(studies::predict(planned).iteration.base()));
  CHECK(report.plans.front().plan.lower_bound <= report.plans.front().plan.predicted_step);
}
