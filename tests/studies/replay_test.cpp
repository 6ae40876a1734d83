// Recorded steps are made by the simulator from known costs, so every answer of a replay is known.
#include "studies/traces/replay.h"

#include <array>
#include <catch2/catch.hpp>

#include "core/config/config.h"
#include "core/error.h"
#include "simulator/reports/timeline.h"
#include "tests/simulator/graphs.h"
#include "traces/native/native_trace.h"

using namespace stepcast;
using simulator::test::compute;
using simulator::test::talk;

namespace {

constexpr std::int64_t kMicrosecond = 1000000;  // ticks

/// Two ranks: kernels, an all-reduce on its own stream under more kernels, and an end that waits.
ExecutionGraph step_graph() {
  ProgramBuilder b;
  const auto s = b.begin_segment("layer");
  const auto ready = b.event(), reduced = b.event();
  compute(b, "matrix");
  compute(b, "gradient").records(ready);
  talk(b, OpKind::kAllReduce, "reduce", 0, "network").waits(ready).records(reduced);
  compute(b, "other");
  compute(b, "update").waits(reduced);
  b.end_segment();
  b.call(s);
  b.call(s);
  b.call(s);
  return simulator::test::alike(2, std::move(b).finish());
}

simulator::StepCosts step_costs(const ExecutionGraph& g) {
  simulator::StepCosts c = simulator::blank_costs(g, true);
  simulator::test::set_cost(g, c, "matrix", 40 * kMicrosecond);
  simulator::test::set_cost_of(g, c, 1, "matrix", 50 * kMicrosecond);  // rank 0 waits for it
  simulator::test::set_cost(g, c, "gradient", 20 * kMicrosecond);
  simulator::test::set_cost(g, c, "reduce", 35 * kMicrosecond);
  simulator::test::set_cost(g, c, "other", 15 * kMicrosecond);
  simulator::test::set_cost(g, c, "update", 10 * kMicrosecond);
  c.issue = kMicrosecond;
  c.dispatch = kMicrosecond / 2;
  c.finish = 3 * kMicrosecond;
  return c;
}

/// Recording that a profiler of those ranks would have written.
traces::GraphRun record(const ExecutionGraph& graph, const simulator::StepCosts& costs, int steps,
                        double sigma = 0) {
  traces::GraphRun trace;
  trace.graph = graph;
  trace.shares_core = costs.shares_core;
  trace.collectives_hold_core = costs.collectives_hold_core;
  trace.ranks.resize(static_cast<std::size_t>(graph.ranks()));
  for (int s = 0; s < steps; ++s) {
    simulator::Timeline timeline;
    simulator::SimulationOptions options;
    options.step = s;
    simulator::StepCosts noisy = costs;
    simulator::test::jitter(graph, noisy, sigma, 0, static_cast<std::uint64_t>(s + 1));
    const auto result = simulator::simulate(graph, noisy, options, &timeline);
    const std::int64_t origin = s * 10000 * kMicrosecond;
    const auto shift = [origin](SimTime& t) { t = SimTime{ticks(t) + origin}; };
    for (const simulator::RankSummary& r : result.ranks) {
      auto& rank = trace.ranks[static_cast<std::size_t>(r.rank)];
      rank.rank = r.rank;
      rank.steps.push_back({s, SimTime{origin}, SimTime{origin + ticks(r.end)}});
    }
    for (OpSpan span : timeline.ops()) {
      shift(span.issued), shift(span.begin), shift(span.ready), shift(span.end);
      span.ready = span.begin;  // a rank cannot see it
      trace.ranks[static_cast<std::size_t>(span.rank)].ops.push_back(span);
    }
    for (HostSpan span : timeline.hosts()) {
      shift(span.begin), shift(span.end);
      trace.ranks[static_cast<std::size_t>(span.rank)].host.push_back(span);
    }
  }
  traces::align_clocks(trace);
  return trace;
}

double step_seconds(const ExecutionGraph& g, const simulator::StepCosts& c) {
  return to_seconds(simulator::simulate(g, c).makespan).base();
}

}  // namespace

TEST_CASE("a replay of a noiseless record is that record", "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  simulator::StepCosts c = step_costs(g);
  c.shares_core = GENERATE(false, true);
  c.collectives_hold_core = c.shares_core && GENERATE(false, true);
  const studies::Replay r = studies::replay(traces::measured_run(record(g, c, 3)));
  CAPTURE(c.shares_core, c.collectives_hold_core);
  CHECK(r.measured_step.base() == Approx(step_seconds(g, c)).epsilon(1e-9));
  CHECK(r.error == Approx(0).margin(0.01));
  CHECK(r.next_step_error < 0.01);
  CHECK(r.kernel_start_p95 < microseconds(1.5));
  CHECK_FALSE(r.host_bound);
  CHECK(r.by_rank.size() == 2);
  CHECK(r.by_rank[1].busy / r.by_rank[1].measured_busy == Approx(1).epsilon(0.01));
}

TEST_CASE("an unequal all-to-all ends rank by rank, an all-reduce together", "[studies][replay]") {
  const auto replayed = [](OpKind kind) {
    ProgramBuilder b;
    const auto s = b.begin_segment("layer");
    compute(b, "pack");
    talk(b, kind, "exchange", 0);
    compute(b, "unpack");
    b.end_segment();
    b.call(s);
    const ExecutionGraph g = simulator::test::alike(2, std::move(b).finish());
    simulator::StepCosts c = simulator::blank_costs(g, true);
    simulator::test::set_cost(g, c, "pack", 10 * kMicrosecond);
    simulator::test::set_cost_of(g, c, 1, "pack", 25 * kMicrosecond);  // the last to come
    simulator::test::set_cost_of(g, c, 0, "exchange", 20 * kMicrosecond);
    simulator::test::set_cost_of(g, c, 1, "exchange", 90 * kMicrosecond);  // sends most
    simulator::test::set_cost(g, c, "unpack", 5 * kMicrosecond);
    const traces::MeasuredRun run = traces::measured_run(record(g, c, 2));
    simulator::Timeline timeline;
    simulator::simulate(*run.steps.front().graph, studies::measured_costs(run, run.steps), {},
                        &timeline);
    std::array<double, 2> begin{};
    for (const OpSpan& span : timeline.ops()) {
      if (g.program_of(span.rank).name(g.program_of(span.rank).ops[span.ref.op]) == "unpack") {
        begin.at(static_cast<std::size_t>(span.rank)) = to_seconds(span.begin).base() * 1e6;
      }
    }
    return begin;
  };
  // Both are there at 25: rank 0 is done at 45, rank 1 at 115.
  const auto unequal = replayed(OpKind::kAllToAllV);
  CHECK(unequal[0] == Approx(45).margin(0.5));
  CHECK(unequal[1] == Approx(115).margin(0.5));
  // In an all-reduce what one rank took longer was no transfer: both end with the faster.
  const auto together = replayed(OpKind::kAllReduce);
  CHECK(together[0] == Approx(together[1]).margin(0.5));
}

TEST_CASE("what-if answers are those of the changed machine", "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  const simulator::StepCosts c = step_costs(g);
  const traces::MeasuredRun run = traces::measured_run(record(g, c, 2));
  const auto answer = [&](studies::ReplayChange change) {
    studies::ReplayOptions options;
    options.change = std::move(change);
    return studies::replay(run, options).changed_step.value().base();
  };
  simulator::StepCosts truth = c;
  simulator::test::set_cost(g, truth, "reduce", 105 * kMicrosecond);
  CHECK(answer({.scales = {{"comm", 3}}, .drops = {}}) ==
        Approx(step_seconds(g, truth)).epsilon(0.01));
  CHECK(answer({.scales = {{"all_reduce", 3}}, .drops = {}}) ==
        Approx(step_seconds(g, truth)).epsilon(0.01));
  truth = c;
  simulator::test::set_cost(g, truth, "matrix", 20 * kMicrosecond);
  simulator::test::set_cost_of(g, truth, 1, "matrix", 25 * kMicrosecond);
  CHECK(answer({.scales = {{"mat*", 0.5}}, .drops = {}}) ==
        Approx(step_seconds(g, truth)).epsilon(0.01));
  truth = c;
  simulator::test::set_cost(g, truth, "reduce", 0);
  CHECK(answer({.scales = {}, .drops = {"reduce"}}) ==
        Approx(step_seconds(g, truth)).epsilon(0.01));
}

TEST_CASE("what changes nothing changes nothing, whatever graphs a record holds",
          "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  simulator::StepCosts longer = step_costs(g);
  simulator::test::set_cost(g, longer, "matrix", 400 * kMicrosecond);
  traces::MeasuredRun run = traces::measured_run(record(g, step_costs(g), 3));
  for (const simulator::StepCosts& costs : {step_costs(g), longer}) {  // graphs of their own
    const traces::MeasuredRun other = traces::measured_run(record(g, costs, 1));
    run.steps.insert(run.steps.end(), other.steps.begin(), other.steps.end());
  }
  studies::ReplayOptions options;
  options.change.scales = {{"all", 1}};
  const studies::Replay same = studies::replay(run, options);
  CHECK(same.change == Approx(1));
  CHECK(same.unchanged_step->base() == Approx(step_seconds(g, longer)).epsilon(0.01));
  CHECK(same.replayed_step.base() < 0.5 * same.unchanged_step->base());
}

TEST_CASE("the controls tell a host-bound record", "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  simulator::StepCosts c = step_costs(g);
  CHECK(studies::replay(traces::measured_run(record(g, c, 2))).scale_2.base() >
        1.8 * step_seconds(g, c));
  c.issue = 400 * kMicrosecond;  // far more than any kernel takes
  const studies::Replay r = studies::replay(traces::measured_run(record(g, c, 2)));
  CHECK(r.host_bound);
  CHECK(r.scale_0 / r.replayed_step > 0.95);
}

TEST_CASE("a full queue is not host work", "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  simulator::StepCosts c = step_costs(g);
  c.queue_depth = 2;
  const traces::MeasuredRun run = traces::measured_run(record(g, c, 2));
  const studies::Replay r = studies::replay(run);
  CHECK(r.stripped_wait > microseconds(100));
  // With the waits left in, the halved kernels would still be issued at the old efficiency.
  studies::ReplayOptions options;
  options.change.scales = {{"all", 0.5}};
  simulator::StepCosts half = c;
  studies::scale_device_times(half, 0.5);
  CHECK(studies::replay(run, options).changed_step.value().base() ==
        Approx(step_seconds(g, half)).epsilon(0.02));
}

TEST_CASE("noisy steps are replayed from their medians", "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  const simulator::StepCosts c = step_costs(g);
  const studies::Replay r = studies::replay(traces::measured_run(record(g, c, 15, 0.05)));
  CHECK(std::abs(r.error) < 0.05);
  CHECK(r.next_step_error < 0.05);
  CHECK(r.last_step_error > 0);
}

TEST_CASE("a recorded job is carried over to other ranks and another network",
          "[studies][replay]") {
  const config::Library library{STEPCAST_SOURCE_DIR};
  const traces::MeasuredRun run = traces::measured_run(
      traces::read_native(std::string(STEPCAST_SOURCE_DIR) + "/traces/recorded/dlrm-2"));
  studies::ReplayOptions options;
  options.library = library;
  const Seconds same = studies::replayed_step(run, options);
  options.ranks = 2;
  CHECK(studies::replayed_step(run, options).base() == Approx(same.base()).epsilon(1e-9));
  // Half the samples on each rank: less compute, never less than half of the step.
  options.ranks = 4;
  const Seconds wider = studies::replayed_step(run, options);
  CHECK(wider < same);
  CHECK(wider > 0.4 * same);
  // A network a thousand times slower than shared memory takes longer than all else together.
  options.ranks = 0;
  System slow = config::load_system("dgx-h100", library);
  slow.fitted.clear();
  for (FabricLevel& level : slow.fabric) {
    level.bandwidth = GBps(0.01);
  }
  options.change.network = &slow;
  CHECK(studies::replayed_step(run, options) > 2 * same);
}

TEST_CASE("questions a record cannot answer are refused", "[studies][replay]") {
  const ExecutionGraph g = step_graph();
  traces::GraphRun trace = record(g, step_costs(g), 1);
  const traces::MeasuredRun run = traces::measured_run(trace);
  studies::ReplayOptions options;
  options.change.scales = {{"matrx", 2}};
  CHECK_THROWS_WITH(studies::replay(run, options), Catch::Contains("did you mean \"matrix\"?"));
  options.change.scales.clear();
  options.ranks = 4;
  CHECK_THROWS_WITH(studies::replay(run, options), Catch::Contains("carries no job"));
  trace.ranks[1].steps.clear();
  CHECK_THROWS_AS(traces::measured_run(trace), InputError);
}

TEST_CASE("kernels move to another device by the ratio of the models", "[studies][replay]") {
  const std::string root = STEPCAST_SOURCE_DIR;
  const traces::MeasuredRun run =
      traces::measured_run(traces::read_native(root + "/traces/recorded/gpt-2"));
  const Job job = config::load_job(config::text_source(run.job, "trace"), {}, {root});
  const auto on = [&](const Device& device) {
    studies::ReplayOptions options;
    options.library = {root};
    options.change.device = &device;
    return studies::replayed_step(run, options);
  };
  const Seconds as_recorded = studies::replayed_step(run, {});
  CHECK(on(job.system.device) == as_recorded);  // the device it ran on changes nothing

  // Facts alone, times a hundred: kernels all but vanish, transfers and host stay.
  Device facts = job.system.device;
  facts.fitted.clear();
  Device fast = facts;
  for (auto& [format, peak] : fast.peak) {
    peak *= 100;
  }
  fast.bandwidth *= 100;
  fast.launch *= 0.01;
  CHECK(on(fast) < on(facts));
  studies::ReplayOptions dropped;
  dropped.library = {root};
  dropped.change.drops = {"compute"};
  CHECK(on(fast) > studies::replayed_step(run, dropped));

  // A recording without a job knows no shapes.
  traces::MeasuredRun bare = run;
  bare.job.clear();
  studies::ReplayOptions options;
  options.change.device = &facts;
  CHECK_THROWS_AS(studies::replayed_step(bare, options), InputError);
}
