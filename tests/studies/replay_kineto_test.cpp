// Replay of timelines that others recorded: small ones written here with every time known, and
// published ones.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "core/config/config.h"
#include "core/error.h"
#include "core/graph/collective_schedule.h"
#include "models/cost_model.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"
#include "studies/traces/replay.h"
#include "studies/traces/show_measured.h"
#include "tests/studies/kineto_events.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

using namespace stepcast;
using studies::test::KinetoEvents;
namespace fs = std::filesystem;

namespace {

/// Two kernels on stream 7; a third on stream 20 that waits for the second; then the host waits for
/// the device, works 30 us and launches a last one.
KinetoEvents overlapped_step() {
  KinetoEvents k;
  k.step(1, 0, 500);
  k.call("cudaLaunchKernel", 10, 5, 1);
  k.kernel("gemm_a", 7, 20, 100, 1);
  k.call("cudaLaunchKernel", 20, 5, 2);
  k.kernel("b", 7, 121, 50, 2);  // queued behind the first: gap 1
  k.call("cudaEventRecord", 30, 2, 3);
  k.call("cudaStreamWaitEvent", 35, 2, 4);
  k.sync("Stream Wait Event", 20, 35, 2, 4, 7, 3);
  k.call("cudaLaunchKernel", 40, 5, 5);
  k.kernel("c", 20, 172, 40, 5);
  k.call("cudaDeviceSynchronize", 50, 165, 6);  // returns 3 after c ended at 212
  k.call("cudaLaunchKernel", 245, 5, 7);
  k.kernel("d", 7, 255, 20, 7);
  return k;
}

}  // namespace

TEST_CASE("a timeline becomes launches, streams and waits", "[studies][replay][kineto]") {
  const traces::MeasuredRun run = traces::measured_run(overlapped_step().open());
  REQUIRE(run.steps.size() == 1);
  const traces::MeasuredStep& step = run.steps.front();
  CHECK(step.wall == 500'000'000);
  // Stripped: the synchronising call until c ended, 212 - 50.
  CHECK(step.ranks.front().stripped == 162'000'000);
  const studies::Replay r = studies::replay(run);
  CHECK(r.error == Approx(0).margin(0.01));
  CHECK(r.kernel_start_p95 < microseconds(2));
  CHECK(r.last_end_error == Approx(0).margin(0.01));  // of the device: the host goes on by 225
  CHECK_FALSE(r.host_bound);

  // Twice as long: a 20..220, b ..321, c ..402 after b; the host goes on at 402 + 3, launches d 30
  // later and has 255 left to the end of the step: 405 + 30 + 255 = 690.
  CHECK(r.scale_2.base() == Approx(690e-6).epsilon(0.01));
  // No device time: the synchronising call costs its own 3 us once c could begin (50).
  CHECK(r.scale_0.base() == Approx((50 + 3 + 30 + 255) * 1e-6).epsilon(0.03));
  studies::ReplayOptions options;
  options.change.scales = {{"gemm", 2}};
  CHECK(studies::replay(run, options).changed_step.value().base() == Approx(600e-6).epsilon(0.01));
}

TEST_CASE("idle time has a cause, work has slack", "[studies][show][kineto]") {
  const studies::MeasuredShow show =
      studies::show_measured(traces::measured_run(overlapped_step().open()));
  REQUIRE(show.ranks.size() == 1);
  const studies::StreamUse& use = show.ranks.front();
  CHECK(use.stream == "device 0 stream 7");
  const auto us = [](Seconds t) { return t.base() * 1e6; };
  CHECK(us(use.compute) == Approx(170));  // a 100, b 50, d 20
  CHECK(us(use.drain) == Approx(225));    // d ends at 275 of 500
  // Before a 20 and before d 84, of which the launches took the last 5 to 10; between a and b 1.
  CHECK(us(use.host) == Approx(84).margin(11));
  CHECK(us(use.host + use.gap) == Approx(105));
  CHECK(us(use.for_communication + use.for_rank + use.for_stream) == Approx(0).margin(1e-9));
  CHECK(us(use.step) == Approx(500));
  CHECK(use.queue_most == 3);  // a, b and c were launched before a ended
  // The path runs through the launch, a, b, c, the host and d.
  CHECK(us(show.path_host + show.path_compute + show.path_transfer + show.path_gap) ==
        Approx(500).epsilon(0.01));
  for (const studies::MeasuredKernel& k : show.kernels) {
    CAPTURE(k.name);
    CHECK(us(k.slack) >= -1e-9);
    if (k.name == "gemm_a") {
      CHECK(us(k.time) == Approx(100));
      CHECK(us(k.on_critical_path) == Approx(100));
      CHECK(us(k.slack) == Approx(0).margin(0.1));
    }
  }
}

TEST_CASE("work of earlier calls and lost launches are kept", "[studies][replay][kineto]") {
  KinetoEvents k;
  k.call("cudaLaunchKernel", 80, 5, 1);
  k.kernel("long", 7, 85, 100, 1);  // runs on until 185
  k.step(2, 100, 200);
  k.kernel("lost", 9, 150, 10, 77);  // its launch was dropped
  k.call("cudaLaunchKernel", 110, 5, 2);
  k.kernel("next", 7, 186, 60, 2);
  const traces::MeasuredRun run = traces::measured_run(k.open());
  REQUIRE(run.step_count() == 1);
  simulator::Timeline timeline;
  simulator::simulate(*run.chain()->graph, studies::measured_costs(run, run.steps), {}, &timeline);
  const Program& program = run.chain()->graph->programs.front();
  const auto begin_of = [&](std::string_view name) {
    for (const OpSpan& s : timeline.ops()) {
      if (program.name(program.ops[s.ref.op]) == name) {
        return to_seconds(s.begin).base() * 1e6;
      }
    }
    return -1.0;
  };
  CHECK(begin_of("carried over") == Approx(0).margin(1.5));
  CHECK(begin_of("next") == Approx(86).margin(1.5));  // after what was carried over
  CHECK(begin_of("lost") == Approx(50).margin(8));
}

TEST_CASE("streams of a device alone wait for each other", "[studies][replay][kineto]") {
  // Ten kernels of 10 us, then one of 20 on another stream that the next round waits for: 131 us,
  // with more kernels than a queue holds.
  KinetoEvents k;
  double at = 0;
  int id = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 10; ++i, at += 11) {
      k.kernel("gemm", 7, at, 10, ++id);
    }
    k.kernel("copy_kernel", 9, at, 20, ++id);
    at += 21;
  }
  const traces::MeasuredRun run = traces::measured_run(k.open());
  CHECK(studies::replay(run).error == Approx(0).margin(1e-3));
  const studies::MeasuredShow show = studies::show_measured(run);
  CHECK(show.bound == "compute");
  CHECK(show.half_compute == Approx(-60.0 / 131).margin(1e-3));
}

TEST_CASE("one rank's collectives move to another network, their waits stay",
          "[studies][replay][kineto]") {
  // 4 MB in 100 us and, after a wait of 40, in 140; 1 MB in 60; its own kernel.
  const auto reduce = [](KinetoEvents& k, double at, double lasts, int elements, int id) {
    k.call("cudaLaunchKernel", at - 5, 2, id);
    k.kernel(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, at, lasts,
        id,
        fmt::format(R"(,"Collective name":"allreduce","In msg nelems":{0},"Out msg nelems":{0},)"
                    R"("Group size":2,"dtype":"Float","Process Group Name":"0",)"
                    R"("Process Group Ranks":"[0, 1]")",
                    elements));
  };
  KinetoEvents k;
  k.step(1, 0, 1000);
  reduce(k, 100, 100, 1 << 20, 1);
  reduce(k, 300, 140, 1 << 20, 2);
  reduce(k, 500, 60, 1 << 18, 3);
  k.call("cudaLaunchKernel", 590, 2, 4);
  k.kernel("gemm", 7, 600, 300, 4);
  const traces::MeasuredRun run =
      traces::measured_run(k.open(R"("distributedInfo":{"rank":0,"world_size":2},)"));
  const auto& partial = run.chain()->ranks.front().partial;
  REQUIRE(partial.size() == 3);
  REQUIRE(run.warnings.size() == 1);
  CHECK_THAT(run.warnings[0], Catch::StartsWith("3 collectives are counted alone, waits included"));
  CHECK(partial.begin()->second == std::vector<std::int32_t>{0, 1});

  System to = config::load_system("dgx-h100", {STEPCAST_SOURCE_DIR});
  const simulator::StepCosts before = studies::measured_costs(run, std::span(run.chain(), 1));
  simulator::StepCosts after = before;
  CHECK(studies::move_collectives(run.chain()->ranks, *run.chain()->graph, to, after) == 3);
  const models::CostModel model(to, {});
  const GroupShape pair = group_shape(to, std::vector<std::int32_t>{0, 1}, 2);
  std::vector<double> waits;  // what is left beside the transfer, in us
  for (const auto& [o, members] : partial) {
    const Op& op = run.chain()->graph->programs.front().ops[o];
    waits.push_back(1e-6 * static_cast<double>(after.ops[0].ticks[o]) -
                    1e6 * model.collective(op, pair).time.base());
  }
  CHECK(waits[0] == Approx(0).margin(1e-3));
  CHECK(waits[1] == Approx(40).margin(1e-3));
  CHECK(waits[2] == Approx(0).margin(1e-3));

  studies::ReplayOptions options;
  options.change.network = &to;
  const studies::Replay r = studies::replay(run, options);
  REQUIRE(r.doubts.size() == 1);
  CHECK_THAT(r.doubts.front(), Catch::Contains("3 collectives are in the trace"));
  CHECK(r.changed_share->device == Approx(0.5));
  to.fabric.clear();
  CHECK_THROWS_WITH(studies::replay(run, options), Catch::Contains("joins 1 devices"));
}

TEST_CASE("execution graphs without times cannot be replayed", "[studies][replay][kineto]") {
  traces::Recording recording;
  recording.ranks.emplace_back();
  recording.ranks.front().timing = traces::Timing::kNone;
  CHECK_THROWS_WITH(traces::measured_run(recording), Catch::Contains("recorded timeline"));
}

TEST_CASE("every name that a what-if offers changes something", "[studies][replay][kineto]") {
  const fs::path shared = STEPCAST_SHARED_DATA;
  std::vector<traces::MeasuredRun> runs;
  runs.push_back(traces::measured_run(overlapped_step().open()));
  for (const char* name : {"traces/dlrm8-kineto", "traces/param/linear_kineto.json.gz",
                           "two_vendors/h100_Falconsai_nsfw_image_detection__1016002.json.gz"}) {
    if (fs::exists(shared / name)) {
      runs.push_back(traces::measured_run(traces::open_trace(shared / name)));
    }
  }
  for (const traces::MeasuredRun& run : runs) {
    const ExecutionGraph& graph = *run.chain()->graph;
    const simulator::StepCosts costs = studies::measured_costs(run, std::span(run.chain(), 1));
    const auto with = [&](const auto& choose) {
      studies::ReplayChange change;
      choose(change);
      simulator::StepCosts other = costs;
      studies::apply(change, graph, other);
      return studies::changed_share(graph, costs, other);
    };
    std::string offered;
    try {
      (void)with([](auto& c) { c.scales = {{"nothing is called so, not nearly", 0.5}}; });
    } catch (const InputError& e) {
      offered = e.what();
    }
    const std::string before = "expected one of ", after = ", or the name of a kernel";
    const std::size_t from = offered.find(before);
    const std::size_t to = offered.find(after);
    REQUIRE(from != std::string::npos);
    REQUIRE(to != std::string::npos);
    std::istringstream names(offered.substr(from + before.size(), to - from - before.size()) + ",");
    int asked = 0;
    for (std::string name; std::getline(names >> std::ws, name, ',');) {
      CAPTURE(name);
      const studies::ChangedShare scaled = with([&](auto& c) { c.scales = {{name, 0.5}}; });
      CHECK((name == "host" ? scaled.host : scaled.device) > 0);
      const studies::ChangedShare dropped = with([&](auto& c) { c.drops = {name}; });
      CHECK((name == "host" ? dropped.host : dropped.device) > 0);
      ++asked;
    }
    CHECK(asked >= 5);  // host, all, compute, an op kind, a kind of kernel
    CHECK(with([](auto& c) { c.graphs = true; }).host > 0);
  }
}
