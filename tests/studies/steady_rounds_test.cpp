// Steps whose rounds repeat themselves, held to the simulation of all of them: tick for tick.
#include "simulator/steady_rounds.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

#include "core/config/config.h"
#include "simulator/reports/breakdown.h"
#include "simulator/reports/timeline.h"
#include "studies/predict/simulated_step.h"
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

auto shares(const simulator::Breakdown& parts) {
  std::vector<std::int64_t> all;
  for (const SimTime part : {parts.compute, parts.exposed_communication, parts.bubble, parts.host,
                             parts.other, parts.done}) {
    all.push_back(ticks(part));
  }
  for (const simulator::OpShare& op : parts.by_op) {
    all.insert(all.end(), {op.executions, ticks(op.compute), ticks(op.exposed_communication),
                           ticks(op.bubble)});
  }
  return all;
}

auto times(const std::vector<TemplateTime>& templates) {
  std::vector<std::tuple<std::int64_t, double, double>> all;
  for (const TemplateTime& t : templates) {
    all.emplace_back(t.executions, t.time.base(), t.wait.base());
  }
  return all;
}

/// Checks what reports make of the spans of a rank.
void check_same_account(const Program& program, const simulator::RankSummary& rank,
                        const simulator::Timeline& spans, const simulator::RankSummary& of_all,
                        const simulator::Timeline& all, SimTime makespan) {
  const auto parts = [&](const simulator::RankSummary& r, const simulator::Timeline& timeline) {
    return shares(simulator::breakdown(program, timeline, r.rank,
                                       {.begin = SimTime{},
                                        .end = makespan,
                                        .rank_end = r.end,
                                        .shares_core = false,
                                        .repetition = r.repetition}));
  };
  CHECK((parts(rank, spans) == parts(of_all, all)));
  CHECK((times(template_times(spans, program, rank.rank, rank.repetition)) ==
         times(template_times(all, program, rank.rank))));
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
    check_same_account(graph.program_of(whole.ranks[i].rank), derived.ranks[i], spans,
                       whole.ranks[i], all, whole.makespan);
  }
  CHECK(spans.ops().size() < all.ops().size());
}

TEST_CASE("a step without most of its rounds is the whole step to the tick",
          "[studies][simulator][property]") {
  std::mt19937 rng(53);
  int derived = 0;
  int pipelines = 0;
  int overlapped = 0;
  int untold = 0;  // steady, but no rank's rounds can stand for those left out
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
    untold += !steady && simulator::simulate_steady(graph, costs, {}) ? 1 : 0;
    if (!steady) {
      continue;
    }
    INFO("job " << i << ": " << planner::describe(*point));
    check_same(graph, costs, *steady, spans);
    simulator::SimulationOptions options;
    options.steady = true;
    const SimulationResult unseen = simulator::simulate(graph, costs, options);
    options.known = &unseen;
    simulator::Timeline again;
    check_same(graph, costs, simulator::simulate(graph, costs, options, &again), again);
    const Overlap& o = job.parallel.overlap;
    const bool overlaps = o.tensor || o.pipeline || (o.data && point->replicas() > 1);
    ++derived;
    pipelines += point->pipeline > 1 ? 1 : 0;
    overlapped += overlaps ? 1 : 0;
  }
  CHECK(pipelines >= 20);
  CHECK(overlapped >= 8);
  CHECK(untold <= 2);
}

TEST_CASE("a pipeline repeats itself after as many micro-batches as set its pace",
          "[studies][simulator]") {
  const Job job = config::load_job(
      config::text_source("{}", "test"),
      {"workload=glm4.5", "system=dgx-h100", "framework=megatron-core", "devices=128",
       "batch.global=1024", "batch.micro=1", "parallel.context=2",
       "parallel.context_algorithm=all_gather", "parallel.expert=8", "parallel.pipeline=16",
       R"(parallel.pipeline_split={"embedding": 0, "head": 1})", "parallel.zero=1",
       R"(parallel.recompute={"layers": 4})"},
      config::Library{STEPCAST_SOURCE_DIR});
  const models::CostModel model(job.system, job.calibration);
  const ExecutionGraph graph = workloads::build_graph(job);
  const simulator::StepCosts costs = simulator::price(graph, model);
  simulator::Timeline spans;
  const auto steady = simulator::simulate_steady(graph, costs, {}, &spans);
  REQUIRE(steady);
  check_same(graph, costs, *steady, spans);
  // Not a quarter of its 16 stages, doubled.
  CAPTURE(steady->ranks.front().repetition.microbatches);
  CHECK(steady->ranks.front().repetition.microbatches % 4 != 0);
}

}  // namespace
}  // namespace stepcast::studies
