// Steps whose rounds repeat themselves, held to the simulation of all of them: tick for tick.
#include "simulator/steady_rounds.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "simulator/reports/timeline.h"
#include "tests/planner/parallel_jobs.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using planner::testing::random_point;
using planner::testing::random_small_job;
using simulator::SimulationResult;

auto sums(const simulator::RankSummary& r) {
  return std::tuple(r.rank, r.ranks, ticks(r.host_end), ticks(r.end), ticks(r.compute),
                    ticks(r.wait), ticks(r.transfer));
}

/// In one order: streams are interleaved as the engine gets to them.
auto in_order(const std::vector<OpSpan>& spans) {
  std::vector<std::tuple<std::int32_t, OpRef, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, double>>
      all;
  for (const OpSpan& s : spans) {
    all.emplace_back(s.rank, s.ref, ticks(s.issued), ticks(s.begin), ticks(s.ready), ticks(s.end),
                     s.bytes);
  }
  std::sort(all.begin(), all.end());
  return all;
}

void check_same(const ExecutionGraph& graph, const simulator::StepCosts& costs,
                const SimulationResult& derived, const simulator::Timeline& spans) {
  simulator::Timeline all;
  const SimulationResult whole = simulator::simulate(graph, costs, {}, &all);
  CHECK(derived.makespan == whole.makespan);
  CHECK(derived.critical == whole.critical);
  CHECK(derived.ops == whole.ops);
  REQUIRE(derived.ranks.size() == whole.ranks.size());
  for (std::size_t i = 0; i < whole.ranks.size(); ++i) {
    CHECK(sums(derived.ranks[i]) == sums(whole.ranks[i]));
  }
  CHECK((in_order(spans.ops()) == in_order(all.ops())));
}

TEST_CASE("a step without most of its rounds is the whole step to the tick",
          "[studies][simulator][property]") {
  std::mt19937 rng(53);
  int derived = 0;
  int pipelines = 0;
  int overlapped = 0;
  for (int i = 0; derived < 30; ++i) {
    REQUIRE(i < 2000);
    const Job job = random_small_job(rng, 64);
    const auto point = random_point(job, rng);
    if (!point || (point->pipeline == 1 && derived - pipelines >= 10)) {
      continue;
    }
    const Job split = planner::applied(job, *point);
    if (split.microbatches() > 1024) {
      continue;
    }
    const models::CostModel model_of_costs(job.system, job.calibration);
    const ExecutionGraph graph = workloads::build_graph(split);
    const simulator::StepCosts costs = simulator::price(graph, model_of_costs);
    simulator::Timeline spans;
    const auto steady = simulator::simulate_steady(graph, costs, {}, &spans);
    if (!steady) {
      continue;
    }
    INFO("job " << i << ": " << planner::describe(*point));
    check_same(graph, costs, *steady, spans);
    const Overlap& o = job.parallel.overlap;
    const bool overlaps = o.tensor || o.pipeline || (o.data && point->replicas() > 1);
    ++derived;
    pipelines += point->pipeline > 1 ? 1 : 0;
    overlapped += overlaps ? 1 : 0;
  }
  CHECK(pipelines >= 20);
  CHECK(overlapped >= 8);
}

}  // namespace
}  // namespace stepcast::studies
