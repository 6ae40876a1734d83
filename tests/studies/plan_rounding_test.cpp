// Plans, their order and what is counted of a search do not depend on the last digits of predicted
// times, which differ between machines.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>

#include "planner/embedding/migration.h"
#include "studies/plan/plan.h"
#include "studies/plan/plan_parallel.h"
#include "tests/planner/parallel_jobs.h"

namespace stepcast::studies {
namespace {

const std::vector<std::string> kTransformer{"workload=llama3-8b", "system=dgx-h100", "devices=16",
                                            "batch.global=64", "batch.sequence=8192"};
const std::vector<std::string> kRecommender{"workload=mlperf-dlrm-v2", "system=dgx-h100"};

/// On a machine whose speeds, and with them all predicted times, differ in their last digits.
Job nudged(Job job, double by) {
  job.system.device.bandwidth *= 1 + by;
  for (auto& [format, peak] : job.system.device.peak) {
    peak *= 1 + 2 * by;
  }
  for (FabricLevel& level : job.system.fabric) {
    level.bandwidth *= 1 - by;
  }
  return job;
}

std::array<std::int64_t, 7> fields(const planner::SearchCounts& c) {
  return {c.space, c.weights_too_large, c.memory_too_large, c.bounded, c.evaluated, c.left_out,
          c.rough};
}

template <class Plans>
std::vector<planner::PlanPoint> points(const Plans& plans) {
  std::vector<planner::PlanPoint> all;
  for (const auto& plan : plans) {
    all.push_back(plan.point);
  }
  return all;
}

TEST_CASE("last digits of times decide nothing about plans of a transformer", "[plan]") {
  const double by = GENERATE(1e-13, -1e-13);
  const PlanRequest r = planner::testing::request_of(kTransformer);
  PlanRequest other = r;
  other.job = nudged(r.job, by);
  ParallelPlanOptions options;
  options.top = 5;
  options.front = true;
  options.fewer_devices = false;
  const ParallelPlanReport plain = plan_parallel(r, options);
  const ParallelPlanReport again = plan_parallel(other, options);
  REQUIRE(!plain.plans.empty());
  CHECK(plain.plans.front().closed_form != again.plans.front().closed_form);
  CHECK(points(plain.plans) == points(again.plans));
  CHECK(points(plain.front) == points(again.front));
  CHECK(fields(plain.counts) == fields(again.counts));
  CHECK(plain.simulated == again.simulated);
  CHECK(plain.unproven == again.unproven);
}

TEST_CASE("last digits of times decide nothing about plans of a recommender", "[plan]") {
  const double by = GENERATE(1e-13, -1e-13);
  // The second has two tables of almost one cost, which the plans of others order.
  const auto [devices, batch] = GENERATE(std::pair(16, 65536), std::pair(8, 8192));
  std::vector<std::string> set = kRecommender;
  set.push_back(fmt::format("devices={}", devices));
  set.push_back(fmt::format("batch.global={}", batch));
  const Job job = planner::testing::request_of(set).job;
  const PlanReport plain = plan(job, {});
  const PlanReport again = plan(nudged(job, by), {});
  REQUIRE(!plain.plans.empty());
  CHECK(plain.evaluations == again.evaluations);
  REQUIRE(plain.plans.size() == again.plans.size());
  for (std::size_t i = 0; i < plain.plans.size(); ++i) {
    CHECK(plain.plans[i].planner == again.plans[i].planner);
    CHECK(plain.plans[i].mix == again.plans[i].mix);
    const auto& tables = plain.plans[i].plan.tables;
    REQUIRE(tables.size() == again.plans[i].plan.tables.size());
    for (std::size_t t = 0; t < tables.size(); ++t) {
      CHECK(planner::same_placement(tables[t], again.plans[i].plan.tables[t]));
    }
  }
}

}  // namespace
}  // namespace stepcast::studies
