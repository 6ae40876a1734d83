// Time to plan: pricing, search, bound, ledger; the job is loaded already. The bars: 26 tables x 8
// devices under 10 ms, 856 x 128 under 0.2 s, 10,000 x 4,096 under 10 s and 1 GB.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "core/config/config.h"
#include "planner/embedding/embedding_planner.h"
#include "tests/planner/many_tables.h"

namespace {

using namespace stepcast;

const config::Library kLibrary{STEPCAST_SOURCE_DIR};

void report(benchmark::State& state, const planner::EmbeddingPlanning& found) {
  const planner::PlannedCandidate* best = found.best();
  state.counters["gap_percent"] = 100 * found.gap;
  state.counters["evaluations"] = static_cast<double>(found.evaluations);
  state.counters["objective_ms"] = best != nullptr ? best->objective * 1e3 : 0;
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  state.counters["peak_MB"] = static_cast<double>(use.ru_maxrss) / 1024;
}

void plan(benchmark::State& state, const Job& job, bool tiers, bool quick = true) {
  const models::CostModel model(job.system, job.calibration);
  planner::PlannerOptions options;
  options.row_tiers = options.slow_tiers = tiers;
  options.search.effort = quick ? planner::SearchEffort::kQuick : planner::SearchEffort::kNormal;
  planner::EmbeddingPlanning found;
  for (auto _ : state) {
    found = planner::plan_embeddings(job, model, options);
    benchmark::DoNotOptimize(found);
  }
  report(state, found);
}

void mlperf_v2(benchmark::State& state) {
  const Job job = config::load_job(
      config::text_source("{}", "bench"),
      {"workload=mlperf-dlrm-v2", "system=dgx-h100", "devices=" + std::to_string(state.range(0))},
      kLibrary);
  plan(state, job, state.range(1) != 0, state.range(2) == 0);
}

void many_tables(benchmark::State& state) {
  const Job job = planner::testing::many_tables(state.range(0), state.range(1),
                                                config::load_system("dgx-h100", kLibrary));
  plan(state, job, state.range(2) != 0);
}

// Ranks, row tiers, --effort normal (else quick).
BENCHMARK(mlperf_v2)
    ->Args({8, 0, 0})
    ->Args({8, 0, 1})
    ->Args({8, 1, 0})
    ->Args({8, 1, 1})
    ->Args({16, 0, 0})
    ->Args({16, 0, 1})
    ->Args({64, 0, 0})
    ->Args({64, 0, 1})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(many_tables)
    ->Args({856, 128, 0})
    ->Args({856, 128, 1})
    ->Args({10000, 4096, 0})
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
