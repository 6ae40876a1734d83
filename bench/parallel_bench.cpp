// Parallel plans: closed-form configurations per second on one core, whole searches, and the event
// simulation of a 1T-parameter step. The bars: 2 M configurations/s; the space of GPT-3 175B on 64
// devices under 2 s on two cores; 1T on 3,072 devices under 0.3 s.
#include <benchmark/benchmark.h>

#include "core/config/config.h"
#include "core/config/default_framework.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/parallel_search.h"
#include "planner/parallel/parallel_space.h"
#include "simulator/simulate.h"
#include "workloads/build_graph.h"

namespace {

using namespace stepcast;
using namespace stepcast::planner;

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

PlanRequest request(std::vector<std::string> overrides) {
  overrides.emplace_back("framework=none");
  return config::load_plan_request_on_framework(config::text_source("{}", "bench"), overrides,
                                                kLibrary, "")
      .request;
}

/// Time, bound and memory of one configuration after another; costs of layers are at hand.
void configurations(benchmark::State& state) {
  const Job job = request({"workload=gpt3-175b", "system=dgx-a100-80gb", "devices=64"}).job;
  const models::CostModel model(job.system, job.calibration);
  ClosedFormModel path(job, model);
  PlanPoint point;
  point.tensor = 4;
  point.pipeline = 8;
  point.data = 2;
  point.virtual_stages = static_cast<std::int32_t>(state.range(0));
  const PipelineLayout layout =
      layout_of(*job.workload.transformer(), point.pipeline, point.virtual_stages);
  Passes passes = path.reduced().passes(point);
  const StageMessageTimes message_times = message_times_of(path.reduced(), passes, point);
  std::vector<ByRole<StateCosts>> states;
  for (point.zero = 0; point.zero < 2; ++point.zero) {
    states.push_back(path.reduced().states(point));
  }
  std::int64_t done = 0;
  for (auto _ : state) {
    point.recompute_layers = static_cast<std::int32_t>(1 + done % 11);
    point.recompute = RecomputeKind::kFirstLayers;
    path.set_passes(point, layout, passes, passes, message_times);
    for (const ByRole<StateCosts>& s : states) {
      benchmark::DoNotOptimize(path.bound(s));
      ++done;
    }
  }
  state.SetItemsProcessed(done);
}

void search(benchmark::State& state, const char* workload, std::int64_t devices) {
  const PlanRequest r = request({std::string("workload=") + workload, "system=dgx-a100-80gb",
                                 "devices=" + std::to_string(devices)});
  const models::CostModel model(r.job.system, r.job.calibration);
  ParallelSearchOptions options;
  options.capacity = r.job.system.device.memory.base();
  options.threads = static_cast<int>(state.range(0));
  options.front = state.range(1) != 0;
  ParallelSearchResult found;
  for (auto _ : state) {
    found = search_parallel(r, model, options);
  }
  const SearchCounts& c = found.counts;
  state.SetItemsProcessed(c.space * state.iterations());
  state.counters["space"] = static_cast<double>(c.space);
  state.counters["weights"] = static_cast<double>(c.weights_too_large);
  state.counters["memory"] = static_cast<double>(c.memory_too_large);
  state.counters["bounded"] = static_cast<double>(c.bounded);
  state.counters["evaluated"] = static_cast<double>(c.evaluated);
  state.counters["best_s"] = found.best.empty() ? 0 : found.best.front().seconds;
}

void search_gpt3(benchmark::State& state) { search(state, "gpt3-175b", 64); }
void search_mixtral(benchmark::State& state) { search(state, "mixtral-8x7b", 64); }
void search_1t(benchmark::State& state) { search(state, "sc21-1t", 3072); }

/// The engine alone: graph and costs are at hand.
void simulate_1t(benchmark::State& state) {
  const Job job =
      config::load_job(config::text_source("{}", "bench"),
                       {"workload=sc21-1t", "system=dgx-a100-80gb", "devices=3072",
                        "parallel.tensor=8", "parallel.pipeline=64", "parallel.recompute=full"},
                       kLibrary);
  const models::CostModel model(job.system, job.calibration);
  const ExecutionGraph graph = workloads::build_graph(job);
  const simulator::StepCosts costs = simulator::price(graph, model);
  simulator::SimulationResult result;
  for (auto _ : state) {
    result = simulator::simulate(graph, costs);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(result.ops) * state.iterations());
  state.counters["ops"] = static_cast<double>(result.ops);
  state.counters["step_s"] = to_seconds(result.makespan).base();
}

BENCHMARK(configurations)->Arg(1)->Arg(2)->Arg(6);
BENCHMARK(search_gpt3)
    ->Args({1, 1})
    ->Args({2, 1})
    ->Args({2, 0})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(search_mixtral)->Args({1, 1})->Args({2, 1})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(search_1t)->Args({2, 1})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(simulate_1t)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
