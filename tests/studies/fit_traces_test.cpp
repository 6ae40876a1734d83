#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/config/config.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "profiler/capture/device_times.h"
#include "simulator/reports/timeline.h"
#include "studies/compare.h"
#include "studies/core_pace.h"
#include "studies/fit_traces.h"
#include "studies/predict.h"
#include "studies/simulated_step.h"
#include "studies/validate_from_traces.h"
#include "traces/events/rank_builder.h"
#include "traces/native/native_trace.h"
#include "workloads/build_graph.h"

using namespace stepcast;
using namespace stepcast::studies;
namespace fs = std::filesystem;

namespace {

struct TemporaryFolder {
  fs::path path =
      fs::temp_directory_path() / ("stepcast-fit-" + std::to_string(std::random_device{}()));
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() { fs::remove_all(path); }
};

FittedModel constants(const std::string& form, std::map<std::string, double> values) {
  FittedModel m;
  m.form = form;
  m.constants = std::move(values);
  return m;
}

/// A machine whose every cost is known.
System known_machine() {
  System s;
  s.name = "known";
  s.device.name = "known-core";
  s.device.memory = GB(4);
  s.device.bandwidth = GBps(10);
  s.device.l2 = MB(2);
  s.device.peak[Format::kFp32] = FlopsPerSecond(5e10);
  s.device.source = "test";
  s.host = {.devices = 2, .cores = 2, .shares_core = true};
  s.fabric.push_back(
      {.name = "shared-memory", .size = 2, .bandwidth = GBps(2), .latency = microseconds(1)});
  FittedModels& d = s.device.fitted;
  d["gemm"] = constants("gemm.shape_rate", {{"start", 4e-7},
                                            {"call", 1e-7},
                                            {"rate", 1e11},
                                            {"half_m", 6},
                                            {"half_n", 12},
                                            {"half_k", 8},
                                            {"nt", 0.9},
                                            {"tn", 0.8},
                                            {"near", 8e10},
                                            {"far", 1.2e10},
                                            {"capacity", 4e6},
                                            {"tn_half_n", 12},
                                            {"vector", 1e-10}});
  d["memory_bound"] = constants("memory.levels", {{"start", 3e-7},
                                                  {"row", 2e-9},
                                                  {"element", 2e-10},
                                                  {"near", 5e10},
                                                  {"far", 1e10},
                                                  {"capacity", 4e6}});
  d["attention"] = constants("attention.parts", {{"start", 1e-6},
                                                 {"call", 1e-7},
                                                 {"rate", 8e10},
                                                 {"half_dim", 8},
                                                 {"half_keys", 10},
                                                 {"softmax", 3e-10},
                                                 {"bandwidth", 2e10}});
  d["host"] = constants("host.constant", {{"issue", 1.5e-7}, {"dispatch", 2.5e-7}, {"step", 5e-6}});
  s.fitted["collective"] = constants("collective.knee", {{"start", 3e-6},
                                                         {"member", 5e-7},
                                                         {"near", 4e9},
                                                         {"far", 2e9},
                                                         {"capacity", 1e6},
                                                         {"rendezvous", 2e-6},
                                                         {"threshold", 8e3},
                                                         {"self", 1e-10}});
  return s;
}

Job transformer(std::int64_t hidden, std::int64_t sequence, std::int64_t layers, bool tensor) {
  TransformerWorkload t;
  t.layers = layers;
  t.hidden = hidden;
  t.heads = t.kv_heads = 4;
  t.head_dim = hidden / 4;
  t.ffn_hidden = 4 * hidden;
  t.activation = Activation::kGelu;
  t.vocabulary = 512;
  Job job;
  job.workload.model = t;
  job.workload.name = "gpt " + std::to_string(hidden) + "x" + std::to_string(sequence);
  job.system = known_machine();
  job.devices = 2;
  job.formats = {Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32, Format::kFp32};
  (tensor ? job.parallel.tensor : job.parallel.data) = 2;
  job.batch = {.global = 4, .micro = 2, .sequence = sequence};
  job.workload.default_batch = job.batch;
  return job;
}

/// What the CPU runtime would have recorded of `steps` steps had they taken exactly as long as the
/// known machine says. Rank 1's clock runs 3 ms ahead.
traces::Trace simulated_trace(const Job& job, std::int32_t steps) {
  traces::Trace trace;
  trace.producer = "test";
  trace.job = config::job_to_json(job);
  trace.graph = workloads::build_graph(job);
  const models::CostModel model(job.system, job.calibration);
  simulator::StepCosts costs = simulator::price(trace.graph, model, {.unfold = true});
  simulator::Timeline timeline;
  const auto result = simulator::simulate(trace.graph, costs, {}, &timeline);
  for (std::int32_t r = 0; r < 2; ++r) {
    traces::RankTrace rank;
    rank.rank = r;
    for (std::int32_t step = 0; step < steps; ++step) {
      const std::int64_t shift =
          3'000'000'000LL * r + step * (ticks(result.makespan) + 50'000'000LL);
      const auto moved = [shift](SimTime t) { return SimTime{ticks(t) + shift}; };
      rank.steps.push_back({step, moved(SimTime{}), moved(result.makespan)});
      for (OpSpan s : timeline.ops()) {
        if (s.rank == r) {
          s.step = step;
          s.issued = moved(s.issued);
          s.begin = moved(s.begin);
          s.ready = s.begin;
          s.end = moved(s.end);
          rank.ops.push_back(s);
        }
      }
      for (HostSpan s : timeline.hosts()) {
        if (s.rank == r) {
          // The simulator's first interval includes the start of the step, the recorder's does not.
          const std::int64_t start = s.begin == SimTime{} ? costs.step : 0;
          s.step = step;
          s.begin = moved(SimTime{ticks(s.begin) + start});
          s.end = moved(s.end);
          rank.host.push_back(s);
        }
      }
    }
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

std::int64_t whole_ns(SimTime t) { return ticks(t) / 1000 * 1000; }

/// What CUPTI would have recorded of a rank's ops: a call and a kernel each, under the op's id.
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

void write(const fs::path& folder, const traces::Trace& trace) {
  for (const traces::RankTrace& r : trace.ranks) {
    traces::write_rank(folder, r);
  }
  traces::write_manifest(folder, trace, static_cast<int>(trace.ranks.size()));
}

const FitTracesOptions& to_known_core() {
  static const FitTracesOptions options{
      .device = "fitted-core", .system = "fitted", .library = STEPCAST_SOURCE_DIR};
  return options;
}

fs::path recorded(const std::string& name) {
  return fs::path(STEPCAST_SOURCE_DIR) / "traces" / "recorded" / name;
}

std::string error_of(const std::vector<fs::path>& folders) {
  try {
    fit_traces(folders, to_known_core());
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("constants behind a trace are recovered from it", "[studies][fit]") {
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  for (const Job& job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                         transformer(256, 96, 2, true)}) {
    folders.push_back(folder.path / job.workload.name);
    write(folders.back(), simulated_trace(job, 4));
  }
  const FitTracesResult fit = fit_traces(folders, to_known_core());
  REQUIRE(fit.traces.size() == 3);
  CHECK(fit.unexplained.empty());
  CHECK(fit.system.name == "fitted");
  CHECK(fit.system.device.name == "fitted-core");

  const models::CostModel truth(known_machine(), {});
  const models::CostModel fitted(fit.system, {});
  // The host: its share of every op is the same, so that rounding to nanoseconds is all that is
  // lost.
  CHECK(fitted.host().issue / truth.host().issue == Approx(1).margin(0.02));
  CHECK(fitted.host().dispatch / truth.host().dispatch == Approx(1).margin(0.02));
  // Equal ranks that took equal times make no stragglers.
  CHECK(fitted.straggler().log_sigma < 1e-3);
  // Jobs between and a little beyond the traced ones, op by op and as steps.
  for (const Job& unseen : {transformer(128, 64, 3, true), transformer(192, 96, 2, false)}) {
    CAPTURE(unseen.workload.name);
    const ExecutionGraph graph = workloads::build_graph(unseen);
    const Program& program = graph.program_of(0);
    for (const Op& op : program.ops) {
      if (op.kind == OpKind::kGemm) {
        CAPTURE(program.name(op), op.shape[0], op.shape[1], op.shape[2]);
        CHECK(fitted.kernel(program, op).time / truth.kernel(program, op).time ==
              Approx(1).margin(0.02));
      }
    }
    Job on_fitted = unseen;
    on_fitted.system = fit.system;
    CHECK(predict(on_fitted, graph).iteration / predict(unseen, graph).iteration ==
          Approx(1).margin(0.03));
  }
}

TEST_CASE("times are fitted as cores of the common pace would have taken them", "[studies][fit]") {
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  for (const Job& job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                         transformer(256, 96, 2, true)}) {
    traces::Trace trace = simulated_trace(job, 4);
    // The second job met cores that took twice as long, and so did both probes.
    const std::int64_t slow = folders.size() == 1 ? 2 : 1;
    for (traces::RankTrace& rank : trace.ranks) {
      for (OpSpan& s : rank.ops) {
        for (SimTime* t : {&s.issued, &s.begin, &s.ready, &s.end}) {
          *t = SimTime{ticks(*t) * slow};
        }
      }
      for (HostSpan& s : rank.host) {
        s.begin = SimTime{ticks(s.begin) * slow};
        s.end = SimTime{ticks(s.end) * slow};
      }
      for (traces::StepMark& m : rank.steps) {
        m.begin = SimTime{ticks(m.begin) * slow};
        m.end = SimTime{ticks(m.end) * slow};
      }
      trace.core_probes.push_back({microseconds(40) * static_cast<double>(slow),
                                   microseconds(20) * static_cast<double>(slow)});
    }
    folders.push_back(folder.path / job.workload.name);
    write(folders.back(), trace);
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  CHECK(reference_probe(fitted)[0] / microseconds(40) == Approx(1));
  CHECK(reference_probe(fitted)[1] / microseconds(20) == Approx(1));
  CHECK(pace_of({microseconds(80), microseconds(40)}, reference_probe(fitted)) == Approx(2));
  CHECK(pace_of({}, reference_probe(fitted)) == 1);
  const Job unseen = transformer(128, 64, 3, true);
  const ExecutionGraph graph = workloads::build_graph(unseen);
  Job on_fitted = unseen;
  on_fitted.system = fitted;
  CHECK(predict(on_fitted, graph).iteration / predict(unseen, graph).iteration ==
        Approx(1).margin(0.03));
}

TEST_CASE("ranks of a recording are told apart by the ops they share, not by a probe",
          "[studies][fit]") {
  // Both ranks took the same, and rank 1's sum of vectors was probed at half the time.
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  for (const Job& job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                         transformer(256, 96, 2, true)}) {
    traces::Trace trace = simulated_trace(job, 4);
    trace.core_probes = {{microseconds(40), microseconds(20)},
                         {microseconds(40), microseconds(10)}};
    folders.push_back(folder.path / job.workload.name);
    write(folders.back(), trace);
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  CHECK(reference_probe(fitted)[1] / microseconds(20) == Approx(1));
  const Job unseen = transformer(128, 64, 3, true);
  const ExecutionGraph graph = workloads::build_graph(unseen);
  Job on_fitted = unseen;
  on_fitted.system = fitted;
  CHECK(predict(on_fitted, graph).iteration / predict(unseen, graph).iteration ==
        Approx(1).margin(0.03));
}

TEST_CASE("compare tells the gaps between ops from slow moments of single ops",
          "[studies][compare]") {
  // In each of seven steps another op takes 20 us longer, on both ranks. Every op's median, and
  // what no op took, are as before; the step is longer by the 20 us.
  const Job job = transformer(64, 32, 2, false);
  traces::Trace trace = simulated_trace(job, 7);
  const auto back = [](SimTime& t) { t = SimTime{ticks(t) - 3'000'000'000LL}; };
  for (OpSpan& s : trace.ranks[1].ops) {  // one clock
    back(s.issued), back(s.begin), back(s.ready), back(s.end);
  }
  for (traces::StepMark& m : trace.ranks[1].steps) {
    back(m.begin), back(m.end);
  }
  const Comparison before = compare(trace, job);
  const std::int64_t longer = 20'000'000;
  for (traces::RankTrace& rank : trace.ranks) {
    std::map<std::int32_t, SimTime> since;
    for (const OpSpan& s : rank.ops) {
      if (s.ref.op == static_cast<std::uint32_t>(s.step) + 2) {
        since.emplace(s.step, s.begin);
      }
    }
    REQUIRE(since.size() == 7);
    for (OpSpan& s : rank.ops) {
      const bool later = s.begin > since.at(s.step);
      for (SimTime* t : {&s.begin, &s.ready}) {
        *t = SimTime{ticks(*t) + (later ? longer : 0)};
      }
      s.end = SimTime{ticks(s.end) + (later || s.begin == since.at(s.step) ? longer : 0)};
    }
    for (traces::StepMark& m : rank.steps) {
      m.end = SimTime{ticks(m.end) + longer};
    }
  }
  const Comparison after = compare(trace, job);
  const auto row = [](const Comparison& c, const std::string& name) {
    const auto found = std::find_if(c.by_kind.begin(), c.by_kind.end(),
                                    [&](const ComparisonRow& r) { return r.name == name; });
    REQUIRE(found != c.by_kind.end());
    return *found;
  };
  CHECK((after.measured - before.measured) / microseconds(20) == Approx(1).margin(0.01));
  const ComparisonRow gaps = row(after, "host and gaps");
  CHECK(gaps.measured / row(before, "host and gaps").measured == Approx(1).margin(0.01));
  CHECK(gaps.measured / gaps.predicted == Approx(1).margin(0.05));
  CHECK(std::abs(row(before, "beyond the medians").measured / before.measured) < 1e-3);
  CHECK(row(after, "beyond the medians").measured / microseconds(20) == Approx(1).margin(0.02));
  double sum = 0;
  for (const ComparisonRow& r : after.by_kind) {
    sum += r.contribution;
  }
  CHECK(sum == Approx(after.error).margin(1e-9));
}

TEST_CASE("a device that looks like a file is one", "[studies][fit][malformed]") {
  const TemporaryFolder folder;
  const auto told = [&](const std::string& device) {
    try {
      fit_traces(std::vector<fs::path>{recorded("dlrm-2")},
                 {.device = device, .library = STEPCAST_SOURCE_DIR});
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK_THAT(told(folder.path / "nosuch.json"),
             Catch::Contains("--device") && Catch::Contains("does not exist"));
  const fs::path system = folder.path / "machine.json";
  std::ofstream(system) << config::system_to_json(known_machine());
  CHECK_THAT(told(system), Catch::Contains("is the file of system known"));
  const fs::path device = folder.path / "core.json";
  std::ofstream(device) << config::device_to_json(known_machine().device);
  CHECK(fit_traces(std::vector<fs::path>{recorded("dlrm-2")},
                   {.device = device, .library = STEPCAST_SOURCE_DIR})
            .system.device.name == "known-core");
}

TEST_CASE("collectives are fitted as an exchange at the common pace would have taken them",
          "[studies][fit]") {
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  const std::vector<Job> jobs{transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                              transformer(256, 96, 2, true), transformer(128, 64, 2, true)};
  for (const bool apart : {false, true, false}) {
    for (std::size_t i = 0; i < jobs.size() - (folders.size() > 4 ? 1 : 0); ++i) {
      // Every second round the cores are twice as far from each other, and as fast as before.
      Job job = jobs[i];
      if (apart) {
        auto& c = job.system.fitted.at("collective").constants;
        for (const char* cost : {"start", "member", "rendezvous", "self"}) {
          c.at(cost) *= 2;
        }
        c.at("near") /= 2;
        c.at("far") /= 2;
      }
      traces::Trace trace = simulated_trace(job, 4);
      trace.core_probes.assign(
          2, {microseconds(40), microseconds(20), microseconds(5) * (apart ? 2.0 : 1.0)});
      folders.push_back(folder.path / std::to_string(folders.size()));
      write(folders.back(), trace);
    }
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  CHECK(reference_probe(fitted)[2] / microseconds(5) == Approx(1));
  CHECK(exchange_power(fitted) == Approx(1).margin(0.02));
  const Job unseen = transformer(128, 96, 3, true);
  const ExecutionGraph graph = workloads::build_graph(unseen);
  Job on_fitted = unseen;
  on_fitted.system = fitted;
  CHECK(predict(on_fitted, graph).iteration / predict(unseen, graph).iteration ==
        Approx(1).margin(0.03));
}

TEST_CASE("a step's pace is that of its parts", "[studies]") {
  CHECK(StepPace{.core = 1.2, .exchange = 2, .transfers = 0.25}.of_step() == Approx(1.4));
  const ProbeTimes near{microseconds(40), microseconds(20), microseconds(5)};
  const ProbeTimes apart{microseconds(40), microseconds(20), microseconds(15)};
  CHECK(pace_of(apart, near) == 1);
  CHECK(exchange_pace_of(apart, near) == Approx(3));
  CHECK(exchange_pace_of({microseconds(40), microseconds(20)}, near) == 1);
}

TEST_CASE("a device's times, joined from CUPTI's records by op id, are fitted as the CPU's are",
          "[studies][fit]") {
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  for (Job job : {transformer(64, 32, 2, true), transformer(128, 128, 2, false),
                  transformer(256, 96, 2, true)}) {
    job.system.host.shares_core = job.system.host.collectives_hold_core = false;
    traces::Trace trace = simulated_trace(job, 4);
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
    folders.push_back(folder.path / job.workload.name);
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
  traces::Trace on_cores = simulated_trace(transformer(64, 32, 2, true), 4);
  write(folder.path / "cores", on_cores);
  CHECK_THAT(error_of({folders[0], folder.path / "cores"}),
             Catch::Contains("fit them in two calls"));
}

TEST_CASE("spans outside steps, steps that are not whole and drops are counted by name",
          "[studies][fit]") {
  traces::Trace trace = simulated_trace(transformer(64, 32, 2, true), 6);
  const std::string lost = trace.graph.program_of(0).name(trace.graph.program_of(0).ops[0]);
  OpSpan stray = trace.ranks[0].ops.front();
  stray.step = 99;  // no such step
  trace.ranks[0].ops.push_back(stray);
  auto& ops = trace.ranks[1].ops;
  ops.erase(std::find_if(ops.begin(), ops.end(), [](const OpSpan& s) { return s.step == 2; }));
  trace.ranks[1].dropped = 1;
  const TemporaryFolder folder;
  write(folder.path, trace);
  const FitTracesResult fit = fit_traces(std::vector<fs::path>{folder.path}, to_known_core());
  const auto count = [&fit](const std::string& reason, const std::string& name) {
    for (const Unexplained& u : fit.unexplained) {
      if (u.reason == reason && u.name == name) {
        return u.count;
      }
    }
    return std::int64_t{0};
  };
  CHECK(count("outside every step", lost) == 1);
  CHECK(count("step not whole", "rank 1") == 1);
  CHECK(count("dropped by the recorder", "rank 1") == 1);
  CHECK(fit.traces[0].steps == 6);
}

TEST_CASE("without its job a trace tells nothing about tables and exchanges", "[studies][fit]") {
  traces::Trace trace = traces::read_native(recorded("dlrm-2"));
  trace.job.clear();
  const TemporaryFolder folder;
  write(folder.path, trace);
  const FitTracesResult fit = fit_traces(std::vector<fs::path>{folder.path}, to_known_core());
  CHECK(std::any_of(fit.unexplained.begin(), fit.unexplained.end(), [](const Unexplained& u) {
    return u.reason.starts_with("no tables") && u.count > 0;
  }));
  CHECK(std::any_of(fit.unexplained.begin(), fit.unexplained.end(),
                    [](const Unexplained& u) { return u.reason.starts_with("no exchange"); }));
  CHECK(fit.system.device.fitted.count("embedding_forward") == 0);
  CHECK(fit.system.device.fitted.count("gemm") == 1);
}

TEST_CASE("recordings of the CPU runtime give a usable machine, the same bytes twice",
          "[studies][fit]") {
  const std::string ranks = GENERATE("2", "4");
  CAPTURE(ranks);
  const std::vector<fs::path> folders{recorded("dlrm-" + ranks), recorded("gpt-" + ranks)};
  const FitTracesResult fit = fit_traces(folders, to_known_core());
  const std::string text = config::system_to_json(fit.system);
  CHECK(config::system_to_json(
            fit_traces(std::vector<fs::path>{folders[1], folders[0]}, to_known_core()).system) ==
        text);
  // It loads back, and a core does between 1 and 1000 GFLOP/s and issues an op in 5 us at most.
  const System loaded =
      config::read_system(config::text_source(text, "fitted"), {STEPCAST_SOURCE_DIR});
  CHECK(loaded.device.peak.at(Format::kFp32).base() > 1e9);
  CHECK(loaded.device.peak.at(Format::kFp32).base() < 1e12);
  const models::HostCost host = models::CostModel(loaded, {}).host();
  CHECK(host.issue > Seconds{});
  CHECK(host.issue < microseconds(5));
  CHECK(loaded.host.shares_core);
  if (ranks == "4") {
    return;  // four ranks on two cores also wait for a core, which no op shows
  }
  // The recorded jobs themselves, predicted by what was fitted to them.
  for (const fs::path& folder : folders) {
    const traces::Trace trace = traces::read_native(folder);
    Job job = config::load_job(config::text_source(trace.job, "job"), {}, {STEPCAST_SOURCE_DIR});
    job.system = loaded;
    std::vector<double> steps = traces::step_seconds(trace, 0);
    std::sort(steps.begin(), steps.end());
    CAPTURE(folder.string());
    CHECK(predict(job).iteration.base() / steps[steps.size() / 2] == Approx(1).margin(0.25));
  }
}

TEST_CASE("a recording more of one program never makes its fit worse", "[studies][fit]") {
  const TemporaryFolder folder;
  const traces::Trace trace = traces::read_native(recorded("dlrm-2"));
  const Job job =
      config::load_job(config::text_source(trace.job, "job"), {}, {STEPCAST_SOURCE_DIR});
  const ExecutionGraph graph = workloads::build_graph(job);
  const auto fitted_to = [&](const std::vector<fs::path>& folders) {
    return fit_traces(folders, to_known_core());
  };
  // Times of all kernels over those of another machine: nearest to and furthest above or below 1.
  const auto furthest = [&](const System& system, const System& other) {
    const models::CostModel model(system, {}), reference(other, {});
    double worst = 0;
    for (const std::int32_t rank : {0, 1}) {
      const Program& program = graph.program_of(rank);
      for (const Op& op : program.ops) {
        if (!is_collective(op.kind)) {
          const double ratio = model.kernel(program, op).time / reference.kernel(program, op).time;
          worst = std::max(worst, std::abs(std::log(ratio)));
        }
      }
    }
    return worst;
  };
  const System once = fitted_to({recorded("dlrm-2")}).system;
  std::vector<fs::path> exact{recorded("dlrm-2")}, noisy = exact;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> shorter(0.9, 1.0);
  for (int copy = 0; copy < 3; ++copy) {
    traces::Trace again = trace;
    again.producer = fmt::format("copy {}", copy);  // other bytes, the same times
    exact.push_back(folder.path / fmt::format("exact-{}", copy));
    write(exact.back(), again);
    for (traces::RankTrace& rank : again.ranks) {
      for (OpSpan& s : rank.ops) {
        const auto length = static_cast<double>(ticks(s.end) - ticks(s.begin));
        const auto cut = static_cast<std::int64_t>(length * (1 - shorter(random)));
        s.end = SimTime{ticks(s.end) - cut / 1000 * 1000};
      }
    }
    noisy.push_back(folder.path / fmt::format("noisy-{}", copy));
    write(noisy.back(), again);
    // Twice and four times the same; medians of copies up to 10 % shorter.
    CAPTURE(copy);
    const FitTracesResult fit = fitted_to(exact);
    CHECK(fit.traces.size() == exact.size());
    CHECK(furthest(fit.system, once) < 0.01);
    CHECK(furthest(fitted_to(noisy).system, once) < 0.12);
    Job on_once = job, on_fit = job;
    on_once.system = once;
    on_fit.system = fit.system;
    CHECK(predict(on_fit, graph).iteration / predict(on_once, graph).iteration ==
          Approx(1).epsilon(0.01));
  }
  // The same bytes under another name are one recording, and said to be.
  fs::copy(recorded("dlrm-2"), folder.path / "same");
  const FitTracesResult same = fitted_to({recorded("dlrm-2"), folder.path / "same"});
  CHECK(same.traces.size() == 1);
  REQUIRE(same.warnings.size() == 1);
  CHECK_THAT(same.warnings[0], Catch::Contains("is the same recording as"));
  CHECK(config::system_to_json(same.system) == config::system_to_json(once));
}

TEST_CASE("a kind of one shape is predicted as it was measured, however many programs have it",
          "[studies][fit]") {
  // Three programs that differ in depth alone have one shape of the loss: six rows of one place.
  // It takes an eighth of what its class would.
  const TemporaryFolder folder;
  std::vector<fs::path> folders;
  const Job shallow = transformer(64, 32, 2, true);
  const ExecutionGraph graph = workloads::build_graph(shallow);
  const Program& program = graph.program_of(0);
  const auto loss = std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    return class_of(op.kind) == OpClass::kMemoryBound && program.name(op).starts_with("loss");
  });
  REQUIRE(loss != program.ops.end());
  for (const std::int64_t layers : {2, 3, 4}) {
    traces::Trace trace = simulated_trace(transformer(64, 32, layers, true), 4);
    for (traces::RankTrace& rank : trace.ranks) {
      const Program& deep = trace.graph.program_of(rank.rank);
      for (OpSpan& s : rank.ops) {
        if (deep.ops[s.ref.op].kind == loss->kind) {
          const std::int64_t length = ticks(s.end) - ticks(s.begin);
          s.end = SimTime{ticks(s.begin) + length / 8};
        }
      }
    }
    folders.push_back(folder.path / std::to_string(layers));
    write(folders.back(), trace);
  }
  const System fitted = fit_traces(folders, to_known_core()).system;
  const Seconds measured = models::CostModel(known_machine(), {}).kernel(program, *loss).time / 8;
  CHECK(models::CostModel(fitted, {}).kernel(program, *loss).time / measured ==
        Approx(1).margin(0.03));
}

TEST_CASE("captures with shapes give the constants behind their kernels", "[studies][fit]") {
  // Additions that take 3 us and then move 12 bytes an element at 720 GB/s (80 % of the memory's);
  // a convolution of 50 us has no op kind.
  const auto time_of = [](double elements) { return 3 + 12 * elements / 720e3; };
  std::string events;
  double at = 0, explained = 0;
  int correlation = 0;
  const auto launch = [&](const std::string& name, std::int64_t rows, double us) {
    const auto add = [&](const std::string& text) {
      events += (events.empty() ? "" : ",") + ("{\"ph\":\"X\"," + text + "}");
    };
    ++correlation;
    add(fmt::format(
        R"("cat":"cpu_op","name":"{}","pid":1,"tid":1,"ts":{},"dur":9,"args":{{"Input Dims":[[{},256],[{},256],[]],"Input type":["float","float","Int"]}})",
        name, at, rows, rows));
    add(fmt::format(
        R"("cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{},"dur":5,"args":{{"correlation":{}}})",
        at + 1, correlation));
    add(fmt::format(
        R"("cat":"kernel","name":"k","pid":0,"tid":7,"ts":{:.4f},"dur":{:.4f},"args":{{"stream":7,"device":0,"correlation":{}}})",
        at + 6, us, correlation));
    at += us + 20;
  };
  for (std::int64_t rows = 64; rows <= 1 << 17; rows *= 2) {
    const double us = time_of(256.0 * static_cast<double>(rows));
    launch("aten::add", rows, us);
    explained += us;
  }
  launch("aten::cudnn_convolution", 8, 50);
  const TemporaryFolder folder;
  const fs::path file = folder.path / "capture.json";
  std::ofstream(file) << R"({"schemaVersion":1,"traceEvents":[)" << events << "]}";
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
  std::string events;
  int correlation = 0;
  const auto launch = [&](const std::string& name, const std::string& dims, double us) {
    const double at = 1000.0 * ++correlation;
    for (
        const std::string& text :
        {fmt::format(
             R"("cat":"cpu_op","name":"{}","pid":1,"tid":1,"ts":{},"dur":9,"args":{{"Input Dims":[{}],"Input type":["float","float"]}})",
             name, at, dims),
         fmt::format(
             R"("cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{},"dur":5,"args":{{"correlation":{}}})",
             at + 1, correlation),
         fmt::format(
             R"("cat":"kernel","name":"k","pid":0,"tid":7,"ts":{},"dur":{},"args":{{"stream":7,"device":0,"correlation":{}}})",
             at + 6, us, correlation)}) {
      events += (events.empty() ? "" : ",") + ("{\"ph\":\"X\"," + text + "}");
    }
  };
  for (std::int64_t rows = 64; rows <= 1 << 16; rows *= 2) {
    launch("aten::add", fmt::format("[{},256],[{},256]", rows, rows), 3 + 0.004 * rows);
  }
  launch("aten::mm", "[512,512],[512,512]", 900);  // one row, and a slow one
  const TemporaryFolder folder;
  const fs::path file = folder.path / "capture.json";
  std::ofstream(file) << R"({"schemaVersion":1,"traceEvents":[)" << events << "]}";
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
    return w == "gemm: one row in the traces; the base's model is kept";
  }));
}

TEST_CASE("traces that cannot be fitted are refused by name", "[studies][fit][malformed]") {
  const TemporaryFolder folder;
  const fs::path empty = folder.path / "empty";
  fs::create_directories(empty);
  CHECK_THAT(error_of({empty}), Catch::Contains("empty: holds no trace (it is empty)"));
  CHECK_THAT(error_of({folder.path / "absent"}), Catch::Contains("absent: does not exist"));
  CHECK_THAT(error_of({}), Catch::Contains("at least one trace"));

  const traces::Trace trace = simulated_trace(transformer(64, 32, 2, true), 2);
  traces::Trace unmarked = trace;
  for (traces::RankTrace& r : unmarked.ranks) {
    r.steps.clear();
  }
  write(folder.path / "unmarked", unmarked);
  CHECK_THAT(error_of({folder.path / "unmarked"}),
             Catch::Contains("unmarked: holds no step that is whole on every rank"));

  write(folder.path / "lost", trace);
  fs::remove(folder.path / "lost" / "rank-1.csv");
  CHECK_THAT(error_of({folder.path / "lost"}),
             Catch::Contains("rank-1.csv") && Catch::Contains("cannot be opened"));

  write(folder.path / "two", trace);
  CHECK_THAT(error_of({folder.path / "two", recorded("gpt-4")}),
             Catch::Contains("gpt-4: was recorded on 4 ranks") && Catch::Contains("2"));
}

TEST_CASE("the jobs to trace are those that leave nothing unseen, where there are such",
          "[studies]") {
  std::vector<ExecutionGraph> jobs, candidates;
  for (const std::int64_t hidden : {64, 128, 256}) {
    jobs.push_back(workloads::build_graph(transformer(hidden, 64, 2, true)));
  }
  // By length: the three jobs, each beside two of another split that lack its collectives.
  for (const std::int64_t hidden : {64, 128, 256}) {
    candidates.push_back(workloads::build_graph(transformer(hidden - 16, 64, 2, false)));
    candidates.push_back(workloads::build_graph(transformer(hidden, 64, 2, true)));
    candidates.push_back(workloads::build_graph(transformer(hidden + 16, 64, 2, false)));
  }
  CHECK(traces_for(jobs, candidates, 3) == std::vector<std::size_t>{1, 4, 7});
}
