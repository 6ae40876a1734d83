// The bound that proofs rest on where transfers run beside compute: never above the event
// simulator, over everything a job can say.
#include <catch2/catch.hpp>

#include "planner/parallel/closed_form_model.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::planner {
namespace {

using testing::random_job;
using testing::random_point;
using testing::simulated;

TEST_CASE("the least time is no more than the simulator's, whatever runs beside what",
          "[planner][parallel][two_engines]") {
  std::mt19937 rng(31);
  const auto flip = [&rng] { return std::uniform_int_distribution<int>(0, 1)(rng) == 1; };
  int near = 0;
  for (int i = 0; i < 150; ++i) {
    Job job = random_job(rng);
    job.parallel.overlap.data = flip();
    job.parallel.overlap.tensor = flip();
    job.parallel.overlap.tensor_products = job.parallel.overlap.tensor && flip();
    job.parallel.overlap.pipeline = flip();
    job.parallel.overlap.expert = flip();
    job.parallel.overlap.parameters = job.parallel.overlap.data && flip();
    const auto point = random_point(job, rng);
    if (!point) {
      continue;
    }
    const models::CostModel model(job.system, job.calibration);
    const double bound =
        ClosedFormModel(job, model, CostBasis::kLowerBound).forecast(*point).seconds;
    const double exact = simulated(job, *point, model);
    INFO("job " << i << ": " << describe(*point));
    CHECK(bound <= exact * 1.005);
    near += bound >= exact * 0.95 ? 1 : 0;
  }
  CHECK(near >= 120);  // and it says something
}

}  // namespace
}  // namespace stepcast::planner
