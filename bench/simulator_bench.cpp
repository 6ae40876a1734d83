// Speed of the event engine. An event is an executed op; counter "events" is events per second on
// one core.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "core/graph/program_builder.h"
#include "simulator/simulate.h"

namespace stepcast::simulator {
namespace {

void set_random_costs(StepCosts& costs, std::int64_t least, std::int64_t spread) {
  std::uint64_t state = 1;
  for (OpCosts& row : costs.ops) {
    for (std::int64_t& t : row.ticks) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      t = least + static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(spread));
    }
  }
}

void run(benchmark::State& state, const ExecutionGraph& graph, const StepCosts& costs,
         const SimulationOptions& options) {
  std::uint64_t ops = 0;
  for (auto _ : state) {
    const SimulationResult result = simulate(graph, costs, options);
    ops += result.ops;
    benchmark::DoNotOptimize(result.makespan);
  }
  state.counters["events"] =
      benchmark::Counter(static_cast<double>(ops), benchmark::Counter::kIsRate);
}

/// 8 ranks; compute with an all-reduce every 10 ops, on one stream; full queues; op by op.
void uncontended(benchmark::State& state) {
  ProgramBuilder b;
  const auto s = b.begin_segment("layer");
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 9) {
      b.op(OpKind::kAllReduce, "sum", {1}).communicator(0);
    } else {
      b.op(OpKind::kFill, "work", {1});
    }
  }
  b.end_segment();
  for (int i = 0; i < 1000; ++i) {
    b.call(s);
  }
  ExecutionGraph graph;
  graph.mesh.data = 8;
  graph.communicators.push_back({"world", {Axis::kData}, {}});
  graph.programs.push_back(std::move(b).finish());
  graph.classes.push_back({0, {0, 1, 2, 3, 4, 5, 6, 7}});
  StepCosts costs = blank_costs(graph, /*unfold=*/true);
  set_random_costs(costs, 1'000'000, 10'000'000);
  costs.issue = 500'000;
  costs.dispatch = 100'000;
  run(state, graph, costs, {.presum = false, .step = 0, .steady = false, .otherwise = {}});
}
BENCHMARK(uncontended)->Unit(benchmark::kMillisecond);

/// 64 streams of one rank whose transfers all share its link.
void contended(benchmark::State& state) {
  ProgramBuilder b;
  const auto s = b.begin_segment("round");
  ExecutionGraph graph;
  graph.mesh.data = 2;
  for (int i = 0; i < 64; ++i) {
    const std::string name = "flow" + std::to_string(i);
    graph.communicators.push_back({name, {Axis::kData}, {}});
    b.op(OpKind::kAllReduce, name, {1}).on(i == 0 ? "compute" : name).communicator(i);
  }
  b.end_segment();
  for (int i = 0; i < 1000; ++i) {
    b.call(s);
  }
  graph.programs.push_back(std::move(b).finish());
  graph.classes.push_back({0, {0, 1}});
  StepCosts costs = blank_costs(graph);
  set_random_costs(costs, 10'000'000, 100'000'000);
  costs.dispatch = 1'000'000;
  run(state, graph, costs, {});
}
BENCHMARK(contended)->Unit(benchmark::kMillisecond);

/// 1,024 ranks: tensor 8 x pipeline 8 x data 16, 96 layers, 1F1B with 64 microbatches. Folding and
/// set-up included.
void pipeline_of_96_layers(benchmark::State& state) {
  constexpr int kStages = 8;
  constexpr int kMicrobatches = 64;
  ExecutionGraph graph;
  graph.mesh = {.tensor = 8, .context = 1, .pipeline = kStages, .data = 16};
  graph.communicators = {{"tensor", {Axis::kTensor}, {}},
                         {"pipeline", {Axis::kPipeline}, {}},
                         {"data", {Axis::kData}, {}}};
  for (int p = 0; p < kStages; ++p) {
    ProgramBuilder b;
    b.set_microbatches(kMicrobatches);
    const auto layers = [&](int ops) {
      for (int layer = 0; layer < 96 / kStages; ++layer) {
        for (int o = 0; o < ops; ++o) {
          b.op(OpKind::kFill, "work", {1});
          if (o == ops / 2 || o == ops - 1) {
            b.op(OpKind::kAllReduce, "tensor", {1}).communicator(0);
          }
        }
      }
    };
    const auto f = b.begin_segment("forward");
    if (p > 0) {
      b.op(OpKind::kRecv, "recv", {1, 0}).communicator(1, p - 1);
    }
    layers(12);
    if (p + 1 < kStages) {
      b.op(OpKind::kSend, "send", {1, 0}).communicator(1, p + 1);
    }
    b.end_segment();
    const auto back = b.begin_segment("backward");
    if (p + 1 < kStages) {
      b.op(OpKind::kRecv, "recv", {1, 1}).communicator(1, p + 1);
    }
    layers(24);
    if (p > 0) {
      b.op(OpKind::kSend, "send", {1, 1}).communicator(1, p - 1);
    }
    b.end_segment();
    const auto update = b.begin_segment("update");
    b.op(OpKind::kAllReduce, "gradients", {1}).communicator(2);
    b.op(OpKind::kFill, "optimizer", {1});
    b.end_segment();
    const int warm = kStages - 1 - p;
    for (int m = 0; m < warm; ++m) {
      b.call(f, m);
    }
    for (int m = warm; m < kMicrobatches; ++m) {
      b.call(f, m);
      b.call(back, m - warm);
    }
    for (int m = kMicrobatches - warm; m < kMicrobatches; ++m) {
      b.call(back, m);
    }
    b.call(update);
    graph.programs.push_back(std::move(b).finish());
    RankClass ranks{p, {}};
    for (std::int32_t r = 0; r < graph.mesh.size(); ++r) {
      if (graph.mesh.coordinate(r, Axis::kPipeline) == p) {
        ranks.ranks.push_back(r);
      }
    }
    graph.classes.push_back(std::move(ranks));
  }
  std::uint64_t ops = 0;
  for (auto _ : state) {
    StepCosts costs = blank_costs(graph);
    set_random_costs(costs, 1'000'000, 10'000'000);
    costs.issue = 500'000;
    costs.dispatch = 100'000;
    costs.slowdown = state.range(0) != 0 ? 1.1 : 1.0;
    const SimulationResult result = simulate(graph, costs);
    ops += result.ops;
    benchmark::DoNotOptimize(result.makespan);
  }
  state.counters["events"] =
      benchmark::Counter(static_cast<double>(ops), benchmark::Counter::kIsRate);
}
BENCHMARK(pipeline_of_96_layers)
    ->Arg(0)
    ->Arg(1)
    ->ArgName("slowdown")
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stepcast::simulator

BENCHMARK_MAIN();
