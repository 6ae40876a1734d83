#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/graph/program_builder.h"
#include "ranks_scenarios.h"
#include "runtime/emulation/emulated_collectives.h"
#include "runtime/futex.h"
#include "runtime/trainer.h"

namespace stepcast::runtime::scenarios {

void emulated_collectives(MpiSession& session) {
  const ExecutionGraph graph = bare_graph(session.size());
  Emulation emulation(flat_system(session.size(), 2e9, 20e-6), graph, 1, session);
  const auto paced = emulation.paced(session.communicators(graph, Waiting::kYield));
  check_collectives(*paced[0], 0);
  check_collectives(*paced[1], session.rank() / 2 * 2);
}

namespace {

/// The ring of two ranks with nothing in it: both meet, sleep a step, meet, sleep a step. What the
/// machine at this moment makes of that.
double bare_ring(double step, MpiSession& session) {
  session.world().barrier();
  const std::int64_t begin = steady_ns();
  for (int i = 0; i < 2; ++i) {
    sleep_until_ns(steady_ns() + std::llround(step * 1e9));
    session.world().barrier();
  }
  return session.maximum({static_cast<double>(steady_ns() - begin) * 1e-9})[0];
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

/// All-reduce of B bytes over 2 ranks at 100 MB/s and 1 ms: 2 steps of B / 2 each. The efficiency
/// is a lower bound that no load of the machine can break. Load does make it longer, so the upper
/// bound is on the ratio to a bare ring run just before: the median of seven, in one of five tries.
void paced(MpiSession& session) {
  const ExecutionGraph graph = bare_graph(session.size());
  Emulation emulation(flat_system(session.size(), 100e6, 1e-3), graph, 1, session);
  const auto all = emulation.paced(session.communicators(graph, Waiting::kYield));
  const std::size_t count = 1'000'000;
  std::vector<float> data(count, 1.0F);
  const double step = static_cast<double>(count) * 4 / 2 / 100e6 + 1e-3;
  std::string seen;
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::vector<double> ratios;
    for (int i = 0; i < 7; ++i) {
      const double bare = bare_ring(step, session);
      session.world().barrier();
      const std::int64_t begin = steady_ns();
      all[0]->all_reduce(data.data(), count);
      const double own = static_cast<double>(steady_ns() - begin) * 1e-9;
      const double time = session.maximum({own})[0];  // of the rank that came first
      require(time > 0.98 * 2 * step, "faster than the fabric");
      ratios.push_back(time / bare);
    }
    const double ratio = median(ratios);
    if (ratio < 1.05) {
      return;
    }
    seen += " " + std::to_string(ratio);
  }
  require(false, "median of all-reduce / bare ring:" + seen);
}

namespace {

/// Products on the compute stream beside an all-reduce, which runs on the same stream or its own.
ExecutionGraph overlap_graph(int ranks, bool own_stream, int products) {
  constexpr std::int64_t n = 256;
  ExecutionGraph graph = bare_graph(ranks);
  graph.inputs = {.batch = {ranks, 1, 8}, .vocabulary = 64, .tables = {}};
  ProgramBuilder b;
  const TensorId a = b.buffer("a", n, n, Format::kFp32);
  const TensorId c = b.buffer("c", n, n, Format::kFp32);
  const TensorId g = b.buffer("g", 1, 500'000, Format::kFp32);
  const auto s = b.begin_segment("step");
  auto reduce = b.op(OpKind::kAllReduce, "reduce", {500'000}).in({g}).out({g}).communicator(0);
  if (own_stream) {
    reduce.on("data");
  }
  b.op(OpKind::kFill, "start", {n * n}).out({a});
  for (int i = 0; i < products; ++i) {
    b.op(OpKind::kGemm, "product", {n, n, n, 1}).in({a, a}).out({c});
  }
  b.end_segment();
  b.call(s);
  graph.programs.push_back(std::move(b).finish());
  graph.classes.push_back({0, {}});
  for (int r = 0; r < ranks; ++r) {
    graph.classes[0].ranks.push_back(r);
  }
  return graph;
}

double median_step(const ExecutionGraph& graph, const System& system, MpiSession& session) {
  RunOptions options;
  options.steps = 5;
  options.warmup = 2;
  options.emulate = &system;
  const RunResult result = run_training(graph, system, options, session);
  std::vector<double> times;
  for (const StepRecord& step : result.steps) {
    times.push_back(step.time.base());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

/// An all-reduce paced to 2 (1 MB / 20 MB/s + 1 ms) = 102 ms beside a few ms of products: on one
/// stream the times add up, on two the longer one remains. The machine may be busy, so only the
/// saving is checked: at least half of the shorter one, in one of three tries.
void overlap(MpiSession& session) {
  const System system = flat_system(session.size(), 20e6, 1e-3);
  constexpr int kProducts = 200;
  std::string seen;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const double transfer = median_step(overlap_graph(session.size(), true, 0), system, session);
    const double together =
        median_step(overlap_graph(session.size(), true, kProducts), system, session);
    const double in_turn =
        median_step(overlap_graph(session.size(), false, kProducts), system, session);
    const double compute = in_turn - transfer;
    require(transfer > 0.1, "the paced time");
    seen += " " + std::to_string(transfer) + " " + std::to_string(together) + " " +
            std::to_string(in_turn);
    if (in_turn - together > 0.5 * std::min(compute, transfer) && compute > 1e-3) {
      return;
    }
  }
  require(false, "transfer, together, in turn [s]:" + seen);
}

}  // namespace stepcast::runtime::scenarios
