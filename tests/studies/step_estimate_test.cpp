// Steps estimated from a few rounds of micro-batches, held to the simulation of them all.
#include <catch2/catch.hpp>

#include "studies/plan/internal/step_estimate.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::studies::internal {
namespace {

using planner::testing::random_job;
using planner::testing::random_point;
using planner::testing::random_small_job;
using planner::testing::simulated;

TEST_CASE("a step estimated from a few rounds of micro-batches is no longer than the whole",
          "[studies][plan]") {
  std::mt19937 rng(37);
  int compared = 0;
  int near = 0;
  for (int i = 0; compared < 40; ++i) {
    REQUIRE(i < 400);
    Job job = random_small_job(rng, 12);
    job.parallel.context_algorithm = ContextAlgorithm::kAllGather;
    const auto point = random_point(job, rng);
    if (!point) {
      continue;
    }
    const models::CostModel costs(job.system, job.calibration);
    const auto estimate = estimated_step(planner::applied(job, *point), costs);
    if (!estimate) {
      continue;
    }
    const double exact = simulated(job, *point, costs);
    INFO("job " << i << ": " << planner::describe(*point));
    CHECK(*estimate <= exact * (1 + kEstimateError));
    ++compared;
    near += *estimate >= exact * 0.99 ? 1 : 0;
  }
  CHECK(near >= 36);
}

TEST_CASE("a step of few micro-batches is not estimated", "[studies][plan]") {
  std::mt19937 rng(1);
  Job job = random_job(rng);
  job.parallel = {};
  job.devices = 1;
  job.batch = {16, 1, 1024};
  CHECK_FALSE(estimated_step(job, models::CostModel(job.system, job.calibration)));
}

}  // namespace
}  // namespace stepcast::studies::internal
