// Claims of `plan` to be proven are held to the simulation of every plan of small spaces in which
// transfers run beside compute.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "core/config/config.h"
#include "core/graph/program.h"
#include "planner/parallel/plan_point.h"
#include "simulator/simulate.h"
#include "studies/plan/plan_parallel.h"
#include "studies/plan/plans_as_set.h"
#include "studies/predict/chosen_plan.h"
#include "studies/predict/recipes.h"
#include "tests/planner/parallel_jobs.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

PlanRequest request(const std::vector<std::string>& more) {
  std::vector<std::string> set{"workload.hidden=2048",       "workload.heads=16",
                               "workload.kv_heads=16",       "workload.ffn_hidden=8192",
                               "workload.vocabulary=32000",  "batch.sequence=2048",
                               "system.host.devices=2",      "system.fabric[0].size=2",
                               "parallel.overlap.data=true", "parallel.overlap.tensor=true"};
  set.insert(set.end(), more.begin(), more.end());
  return planner::testing::small_request(4, set);
}

/// Seconds of every plan that fits, ascending.
std::vector<double> simulated(const PlanRequest& r, const models::CostModel& model) {
  planner::ParallelSearchOptions all;
  all.keep = 1 << 20;
  all.capacity = r.job.system.device.memory.base();
  all.below = 1e9;  // so none is left out
  const planner::ParallelSearchResult found = planner::search_parallel(r, model, all);
  REQUIRE(found.counts.bounded == 0);
  REQUIRE(found.counts.evaluated == static_cast<std::int64_t>(found.best.size()));
  REQUIRE(found.best.size() > 500);
  std::vector<double> seconds;
  for (const planner::ParallelCandidate& c : found.best) {
    const ExecutionGraph graph = workloads::build_graph(planner::applied(r.job, c.point));
    const auto end = simulator::simulate(graph, simulator::price(graph, model)).makespan;
    seconds.push_back(to_seconds(end).base());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

TEST_CASE("no plan of the space is faster than one that is proven best", "[studies][plan]") {
  const std::string pipeline = GENERATE("false", "true");
  const PlanRequest r = request({"parallel.overlap.pipeline=" + pipeline});
  const models::CostModel model(r.job.system, r.job.calibration);
  const std::vector<double> every = simulated(r, model);
  ParallelPlanOptions options;
  options.fewer_devices = false;
  const ParallelPlanReport report = plan_parallel(r, options);
  REQUIRE(report.plans.size() == 3);
  CHECK(report.lower_bound <= every.front() * (1 + kLeastTimeError));
  const double first = report.plans.front().prediction.iteration.base();
  if (report.proven) {
    CHECK(report.unproven == 0);
    CHECK(first <= every.front() * (1 + kLeastTimeError));
  } else {  // those that are faster are among those it names
    const auto faster = std::count_if(every.begin(), every.end(), [first](double s) {
      return s * (1 + kLeastTimeError) < first;
    });
    CHECK(faster <= report.unproven);
  }
  std::set<planner::PlanKind> kinds;
  for (const RankedParallelPlan& plan : report.plans) {
    kinds.insert(planner::kind_of(plan.point));
  }
  CHECK(kinds.size() == report.plans.size());
  CHECK(report.simulated < every.size() / 10);
}

TEST_CASE("of experts both orders of ranks are searched, unless one is given", "[studies][plan]") {
  const auto planned = [](std::vector<std::string> more) {
    std::vector<std::string> set{"workload=mixtral-8x7b", "workload.layers=4",
                                 "system=dgx-h100",       "devices=32",
                                 "batch.global=64",       "batch.sequence=2048",
                                 "parallel.tensor=1",     "parallel.context=1",
                                 "parallel.pipeline=2",   "parallel.expert=8",
                                 "parallel.zero=1",       "parallel.recompute=none"};
    set.insert(set.end(), more.begin(), more.end());
    ParallelPlanOptions options;
    options.fewer_devices = false;
    return plan_parallel(planner::testing::request_of(set), options);
  };
  const ParallelPlanReport both = planned({});
  const ParallelPlanReport usual = planned({"parallel.order=tensor-context-pipeline-data"});
  const ParallelPlanReport turned = planned({"parallel.order=tensor-context-data-pipeline"});
  CHECK(both.order_searched);
  CHECK_FALSE(usual.order_searched);
  CHECK(both.counts.space == usual.counts.space + turned.counts.space);
  // Neighbours of a stage share a node's links, so their exchange is the faster one.
  const auto best = [](const ParallelPlanReport& r) {
    return r.plans.front().prediction.iteration;
  };
  CHECK(best(turned) < best(usual));
  CHECK(best(both) == best(turned));
  CHECK(both.plans.front().job.parallel.order == kPipelineOutside);
  CHECK(both.lower_bound == Approx(std::min(usual.lower_bound, turned.lower_bound)));
}

TEST_CASE("a plan that both orders of ranks give alike is shown once", "[studies][plan]") {
  const PlanRequest r = planner::testing::request_of(
      {"workload=mixtral-8x7b", "workload.layers=4", "system=dgx-h100", "devices=16",
       "batch.global=16", "batch.sequence=2048", "parallel.tensor=8", "parallel.context=1",
       "parallel.data=1", "parallel.recompute=none"});
  ParallelPlanOptions options;
  options.fewer_devices = false;
  const ParallelPlanReport report = plan_parallel(r, options);
  REQUIRE(report.order_searched);
  REQUIRE(report.plans.size() == options.top);
  for (auto p = report.plans.begin(); p != report.plans.end(); ++p) {
    CHECK(std::none_of(p + 1, report.plans.end(),
                       [&p](const RankedParallelPlan& q) { return q.point == p->point; }));
  }
}

TEST_CASE("a search that a time limit cut knows no lower bound", "[studies][plan]") {
  const PlanRequest r = request({});
  double now = 0;
  ParallelPlanOptions options;
  options.time_limit = 0.5;
  options.clock = [&now] { return now += 0.4; };  // over after two looks at it
  const ParallelPlanReport report = plan_parallel(r, options);
  CHECK(report.cut);
  CHECK_FALSE(report.proven);
  CHECK(report.lower_bound == 0);
}

TEST_CASE("a search that a time limit cut at once is not behind what predict chooses",
          "[studies][plan]") {
  const std::string model = GENERATE("llama3-70b", "mixtral-8x7b");
  const std::vector<std::string> set{"workload=" + model,   "system=dgx-h100",    "devices=64",
                                     "batch.sequence=4096", "batch.global=256", "framework=none"};
  const config::Source source = config::text_source("{}", "test");
  const ChosenJob chosen = choose_plan(source, set, planner::testing::kLibrary);
  REQUIRE(chosen.choice.chosen);
  const PlanRequest r = planner::testing::request_of(set);
  double now = 0;
  ParallelPlanOptions options;
  options.time_limit = 0.5;
  options.clock = [&now] { return now += 1; };
  options.headroom = RecipeSearch::kHeadroom * r.job.system.device.memory.base();
  const ParallelPlanReport report = plan_parallel(r, options);
  CHECK(report.cut);
  REQUIRE_FALSE(report.plans.empty());
  CHECK(report.plans.front().prediction.iteration <= predict(chosen.job).iteration * (1 + 1e-9));
}

TEST_CASE("devices that no default batch divides get one, or an error that says what does",
          "[studies][plan]") {
  const config::Source source = config::text_source("{}", "test");
  std::vector<std::string> set{"workload=llama3-8b", "system=dgx-h100", "devices=7000"};
  const auto request_of = [&] {
    return config::load_plan_request_on_framework(source, set, planner::testing::kLibrary, "")
        .request;
  };
  CHECK(dividing_batch(request_of(), source, set, planner::testing::kLibrary) ==
        std::vector<std::string>{"batch.global=7000"});
  set.emplace_back("batch.global=512");
  CHECK(dividing_batch(request_of(), source, set, planner::testing::kLibrary).empty());
  CHECK_THROWS_WITH(plan_parallel(request_of(), {}),
                    Catch::Contains("; use devices=4096 or devices=8192 or batch.global=7000"));
  set = {"workload=llama3-8b", "system=dgx-h100", "devices=8", "parallel.expert=8"};
  CHECK_THROWS_WITH(plan_parallel(request_of(), {}), Catch::Contains("has no experts; use 1"));
}

}  // namespace
}  // namespace stepcast::studies
