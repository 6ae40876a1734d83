// Models from records of CUPTI and of profilers that recorded shapes.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "core/config/config.h"
#include "models/cost_model.h"
#include "profiler/capture/device_times.h"
#include "studies/fit/fit_traces.h"
#include "tests/studies/kineto_events.h"
#include "tests/studies/known_machine.h"
#include "traces/events/rank_builder.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;
using namespace stepcast::studies::test;
namespace fs = std::filesystem;

namespace {

std::int64_t whole_ns(SimTime t) { return ticks(t) / 1000 * 1000; }

/// Records that CUPTI would have made of a rank's ops: a call and a kernel each, under the op's id.
traces::Recording cupti_records_of(const traces::RankTrace& rank) {
  traces::Recording recording;
  traces::RankBuilder b(recording.names, "rank");
  std::int64_t id = 0;
  for (const OpSpan& s : rank.ops) {
    traces::NewEvent call;
    call.begin = traces::Nanoseconds(ticks(s.issued) / 1000);
    call.duration = traces::Nanoseconds(1);
    call.name = b.names().intern("cudaLaunchKernel");
    call.category = traces::EventCategory::kRuntimeCall;
    call.lane = b.host_lane(1, 1);
    call.correlation = ++id;
    call.external = static_cast<std::int64_t>(profiler::op_id(s.ref));
    traces::NewEvent kernel = call;
    kernel.begin = traces::Nanoseconds(ticks(s.begin) / 1000);
    kernel.duration = traces::Nanoseconds(ticks(s.end) / 1000 - ticks(s.begin) / 1000);
    kernel.name = b.names().intern("kernel");
    kernel.category = traces::EventCategory::kKernel;
    kernel.lane = b.stream_lane(0, 1, 7);
    b.add(call);
    b.add(kernel);
  }
  recording.ranks.push_back(std::move(b).finish());
  return recording;
}

/// An operator of two inputs and the kernel that it launches at `at`.
void add_launch(KinetoEvents& events, const std::string& name, const std::string& dims, double at,
                double us, int correlation) {
  events.op(name, at, "[" + dims + "]", R"("float","float")");
  events.call("cudaLaunchKernel", at + 1, 5, correlation);
  events.kernel("k", 7, at + 6, us, correlation);
}

}  // namespace

TEST_CASE("a device's times, joined from CUPTI's records by op id, are fitted as the CPU's are",
          "[studies][fit]") {
  const TemporaryFolder folder("stepcast-fit");
  std::vector<fs::path> folders;
  for (Job job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                  transformer(256, 96, 2, true)}) {
    job.system.host.shares_core = job.system.host.collectives_hold_core = false;
    traces::GraphRun trace = simulated_trace(job, 4);
    trace.op_clock = "cupti";
    trace.shares_core = trace.collectives_hold_core = false;
    for (traces::RankTrace& rank : trace.ranks) {
      const std::vector<OpSpan> truth = rank.ops;
      const traces::Recording recorded = cupti_records_of(rank);
      for (OpSpan& s : rank.ops) {  // what the runtime knows without CUPTI
        s.begin = s.ready = s.end = s.issued;
      }
      const auto found = profiler::take_device_times(rank, trace.graph.program_of(rank.rank),
                                                     recorded, traces::Nanoseconds(0));
      CHECK(found.ops == truth.size());
      CHECK(found.without + found.unnamed == 0);
      std::size_t same = 0;
      for (std::size_t i = 0; i < truth.size(); ++i) {
        same += whole_ns(truth[i].begin) == ticks(rank.ops[i].begin) &&
                        whole_ns(truth[i].end) == ticks(rank.ops[i].end)
                    ? 1
                    : 0;
      }
      CHECK(same == truth.size());
    }
    folders.push_back(folder.path() / job.workload.name);
    write(folders.back(), trace);
  }
  const FitTracesResult fit = fit_traces(folders, to_known_core());
  // Facts of the hardware are the job's: a trace does not measure them.
  CHECK(fit.system.device.bandwidth == known_machine().device.bandwidth);
  CHECK_FALSE(fit.system.host.shares_core);
  const models::CostModel truth(known_machine(), {});
  const models::CostModel fitted(fit.system, {});
  const ExecutionGraph unseen = workloads::build_graph(transformer(128, 64, 3, true));
  const Program& program = unseen.program_of(0);
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kGemm) {
      CAPTURE(program.name(op), op.shape[0], op.shape[1], op.shape[2]);
      CHECK(fitted.kernel(program, op).time / truth.kernel(program, op).time ==
            Approx(1).margin(0.02));
    }
  }
  // Cores and devices are not one machine.
  traces::GraphRun on_cores = simulated_trace(transformer(64, 32, 2, true), 4);
  write(folder.path() / "cores", on_cores);
  CHECK_THAT(error_of({folders[0], folder.path() / "cores"}),
             Catch::Contains("fit them in two calls"));
}

TEST_CASE("captures with shapes give the constants behind their kernels", "[studies][fit]") {
  // Additions that take 3 us and then move 12 bytes an element at 720 GB/s (80 % of the memory's);
  // a convolution of 50 us has no op kind.
  const auto time_of = [](double elements) { return 3 + 12 * elements / 720e3; };
  KinetoEvents events;
  double at = 0, explained = 0;
  int correlation = 0;
  const auto run = [&](const std::string& name, std::int64_t rows, double us) {
    add_launch(events, name, fmt::format("[{},256],[{},256]", rows, rows), at, us, ++correlation);
    at += us + 20;
  };
  for (std::int64_t rows = 64; rows <= 1 << 17; rows *= 2) {
    const double us = time_of(256.0 * static_cast<double>(rows));
    run("aten::add", rows, us);
    explained += us;
  }
  run("aten::cudnn_convolution", 8, 50);
  const TemporaryFolder folder("stepcast-fit");
  const fs::path file = folder.path() / "capture.json";
  events.write(file);
  const FitTracesOptions options{.device = "v100-sxm2-32gb", .library = STEPCAST_SOURCE_DIR};
  const FitTracesResult fit = fit_traces(std::vector<fs::path>{file}, options);
  Op unseen;
  unseen.kind = OpKind::kAdd;
  unseen.shape = {3000, 256};
  fill_work(unseen);
  const models::CostModel model(fit.system, {});
  CHECK(model.kernel({}, unseen).time.base() * 1e6 == Approx(time_of(3000 * 256.0)).epsilon(0.03));
  REQUIRE(fit.unexplained.size() == 1);
  CHECK(fit.unexplained[0].name == "aten::cudnn_convolution");
  CHECK(fit.unexplained[0].seconds / fit.seconds == Approx(50 / (explained + 50)).epsilon(1e-3));
  // A core's rows and a device's do not mix.
  CHECK_THROWS_WITH(fit_traces(std::vector<fs::path>{file, recorded("dlrm-2")}, options),
                    Catch::Contains("two calls"));
}

TEST_CASE("what a capture does not show stays as the base device has it", "[studies][fit]") {
  KinetoEvents events;
  int correlation = 0;
  const auto run = [&](const std::string& name, const std::string& dims, double us) {
    ++correlation;
    add_launch(events, name, dims, 1000.0 * correlation, us, correlation);
  };
  for (std::int64_t rows = 64; rows <= 1 << 16; rows *= 2) {
    run("aten::add", fmt::format("[{},256],[{},256]", rows, rows), 3 + 0.004 * rows);
  }
  run("aten::mm", "[512,512],[512,512]", 900);  // one row, and a slow one
  const TemporaryFolder folder("stepcast-fit");
  const fs::path file = folder.path() / "capture.json";
  events.write(file);
  const FitTracesOptions options{.device = "v100-sxm2-32gb", .library = STEPCAST_SOURCE_DIR};
  const FitTracesResult fit = fit_traces(std::vector<fs::path>{file}, options);
  const Device base = config::load_device("v100-sxm2-32gb", {STEPCAST_SOURCE_DIR});
  const auto& fitted = fit.system.device.fitted;
  for (const char* key : {"gemm", "attention_forward", "norm_backward"}) {
    CAPTURE(key);
    REQUIRE(fitted.contains(key));
    CHECK(fitted.at(key).constants == base.fitted.at(key).constants);
    CHECK(std::count(fit.kept.begin(), fit.kept.end(), key) == 1);
  }
  CHECK(std::count(fit.kept.begin(), fit.kept.end(), "add") == 0);
  CHECK(std::any_of(fit.warnings.begin(), fit.warnings.end(), [](const std::string& w) {
    return w == "gemm: one row in the traces; the base's model stays";
  }));
}
