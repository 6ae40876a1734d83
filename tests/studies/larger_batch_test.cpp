// The samples of a step in one micro-batch take no longer than in several: so a search bounds a
// split whatever its micro-batch.
#include <algorithm>
#include <catch2/catch.hpp>

#include "core/error.h"
#include "models/cost_model.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/internal/split_table.h"
#include "tests/studies/drawn_jobs.h"

namespace stepcast::planner {
namespace {

/// The job's point with so many times its micro-batch, on one stage.
PlanPoint larger(const Job& job, std::int32_t times) {
  PlanPoint point = point_of(job);
  point.virtual_stages = 1;
  point.zero = point.shard_level = point.recompute_layers = 0;
  point.recompute = RecomputeKind::kNone;
  point.schedule = ScheduleKind::kOneFOneB;
  point.micro *= times;
  return point;
}

TEST_CASE("a larger micro-batch takes no longer for its samples", "[planner][parallel][property]") {
  testing::Draw draw(20261201);
  int compared = 0;
  for (int i = 0; i < 200; ++i) {
    const auto drawn = studies::testing::drawn_job(draw, false);
    if (!drawn || drawn->job.phase != JobPhase::kTrain) {
      continue;
    }
    Job job = drawn->job;
    constexpr std::int32_t kMost = 960;
    job.batch.global = job.parallel.data * job.batch.micro * kMost;
    INFO(studies::testing::command_of(drawn->settings));
    const models::CostModel model(job.system, job.calibration);
    for (const CostBasis clock : {CostBasis::kUsual, CostBasis::kLowerBound}) {
      ClosedFormModel path(job, model, clock);
      const auto seconds = [&](std::int32_t times) {
        const PlanPoint point = larger(job, times);
        return path.split_bound(point, path.reduced().passes(point));
      };
      try {
        const double whole = seconds(kMost);
        for (const std::int32_t times : {1, 2, 3, 5, 8, 20, 64, 480}) {
          const double parts = seconds(times);
          CHECK(whole <= parts * internal::SplitTable::kLargerCosts);
          ++compared;
        }
      } catch (const InputError&) {  // a split that the larger micro-batch cannot have
      }
    }
  }
  CHECK(compared > 1500);
}

}  // namespace
}  // namespace stepcast::planner
