#include "studies/fit/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/graph/memory_use.h"
#include "runtime/launch.h"
#include "studies/fit/calibration_rows.h"
#include "studies/fit/device_rows.h"
#include "studies/fit/overlap_rows.h"
#include "studies/run/runtime_cases.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using Clock = std::chrono::steady_clock;

runtime::RunOptions run_options(const ExecutionGraph& graph, const CalibrateOptions& options) {
  runtime::RunOptions run;
  // Short steps get more of them: caches and branch predictors take many steps of some hundred
  // microseconds to settle. The guess only decides how often a job runs, to a factor of some.
  const StepSample work = step_sample(graph, Seconds{});
  const double guess = 5e-5 + work.flops / 5e10 + work.bytes / 5e9;
  run.warmup = std::clamp<std::int64_t>(std::llround(0.05 / guess), 3, 20);
  run.steps = std::clamp<std::int64_t>(std::llround(0.2 / guess), options.quick ? 9 : 13, 60);
  run.seed = options.seed;
  run.real_time = !options.executor;
  run.emulate = options.emulate;
  run.executor = options.executor;
  return run;
}

/// Runs one job. Where CUPTI recorded nothing of one rank alone, events time its ops, and those of
/// the jobs that follow.
RecordedRun run_timed(const Job& job, const ExecutionGraph& graph, CalibrateOptions& options,
                      runtime::MpiSession& session) {
  const runtime::RunOptions run = run_options(graph, options);
  if (options.op_clock && session.size() == 1) {
    try {
      return run_recorded(job, graph, run, session, options.op_clock());
    } catch (const RunError&) {
      options.op_clock = {};
    }
  }
  return run_recorded(job, graph, run, session, options.op_clock ? options.op_clock() : OpClock());
}

void measure(FitRows& all, const Job& job, ExecutionGraph graph, CalibrateOptions& options,
             runtime::MpiSession& session) {
  RecordedRun recorded = run_timed(job, graph, options, session);
  if (session.rank() == 0) {
    if (!options.traces.empty()) {
      write_recorded(options.traces / fmt::format("job-{:03}", all.graphs.size()), job,
                     recorded.trace);
    }
    add_steps(all, job, std::move(graph), std::move(recorded.trace), recorded.alone);
  }
}

/// Whether the step leaves a quarter of the device's memory free, and room for the workspaces of
/// libraries; rank 0, whose device was measured, decides for all.
bool on_all_devices(const ExecutionGraph& graph, const System& system,
                    runtime::MpiSession& session) {
  const Bytes needed = memory_use(graph.program_of(session.rank())).total();
  const bool fits = needed + MiB(256) <= 0.75 * system.device.memory;
  return session.from_rank_zero(fits ? 1 : 0) == 1;
}

constexpr std::int64_t kExpertsEvery = 7;

/// Really trains random small jobs until the budget is spent; returns how many. All ranks together.
std::int64_t measure_jobs(FitRows& all, const System& system, CalibrateOptions options,
                          double budget, runtime::MpiSession& session) {
  std::int64_t configurations = 0;
  const auto begin = Clock::now();
  const auto elapsed = [begin] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  // Kinds and bounds in turn, so that a short calibration has seen all of them. Jobs with experts
  // are extra, with draws of their own, and small: what they have of their own is soon seen.
  Draw draw(options.seed);
  Draw draw_experts(options.seed + 2);
  std::int64_t others = 0;
  for (std::int64_t i = 0;; ++i) {
    const bool experts = i % kExpertsEvery == kExpertsEvery - 1;
    const std::int64_t turn = experts ? 0 : others++;
    const CaseKind kind = experts         ? CaseKind::kExperts
                          : turn % 3 == 2 ? CaseKind::kTransformer
                                          : CaseKind::kDlrm;
    const Bound bound = experts ? (i / kExpertsEvery % 2 == 0 ? Bound::kEmbedding : Bound::kMatrix)
                                : static_cast<Bound>(turn / 3 % 4);
    const bool more = session.from_rank_zero(elapsed() < budget || i < 14 ? 1 : 0) == 1;
    if (!more) {
      return configurations;
    }
    Job job;
    ExecutionGraph graph;
    try {
      job = draw_case(kind, bound, system, session.size(), experts ? draw_experts : draw,
                      options.executor ? CaseSize::kDevice : CaseSize::kCore);
      job.flash_attention = job.flash_attention && options.fused_attention;
      graph = workloads::build_graph(job);
    } catch (const InputError&) {
      continue;  // the draw does not split over these ranks; the next one will
    }
    if (options.executor && !on_all_devices(graph, system, session)) {
      continue;
    }
    if (session.rank() == 0 && options.progress) {
      options.progress(std::min(1.0, elapsed() / std::max(budget, 1.0)), job.workload.name);
    }
    ++configurations;
    measure(all, job, std::move(graph), options, session);
  }
}

/// Measures overlap if transfers can overlap with compute: the same small jobs with and without.
/// All ranks.
OverlapRows measure_overlap(const System& system, const CalibrateOptions& options,
                            runtime::MpiSession& session) {
  OverlapRows rows;
  if (session.size() < 2 || (system.host.shares_core && system.host.collectives_hold_core)) {
    return rows;
  }
  Draw draw(options.seed + 1);
  const std::int64_t jobs = options.quick ? 6 : 12;
  for (std::int64_t i = 0; i < jobs; ++i) {
    Job job = draw_overlap_case(i, system, session.size(), draw);
    std::vector<traces::GraphRun> traces;
    for (const bool overlapped : {false, true}) {
      job.parallel.overlap.data = job.parallel.overlap.dense_all_reduce = overlapped;
      const ExecutionGraph graph = workloads::build_graph(job);
      const runtime::RunOptions run = run_options(graph, options);
      traces.push_back(run_recorded(job, graph, run, session).trace);
    }
    if (session.rank() == 0) {
      add_overlap(rows, traces[0], traces[1]);
    }
  }
  return rows;
}

/// The sweep writes four times the last level cache between cold runs.
constexpr double kFlushedCaches = 4;

double budget_of(const CalibrateOptions& options) {
  return options.seconds > 0 ? options.seconds : options.quick ? 40 : 220;
}

}  // namespace

System local_machine(const runtime::MpiSession& session) {
  System s;
  s.name = "local-cpu";
  Device& d = s.device;
  d.name = "local-cpu-core";
  const auto system_value = [](int name) {
    return static_cast<double>(std::max(0L, sysconf(name)));
  };
  d.memory = Bytes(system_value(_SC_PHYS_PAGES) * system_value(_SC_PAGESIZE) /
                   std::max(1, session.local_size()));
  d.l2 = Bytes(system_value(_SC_LEVEL2_CACHE_SIZE));
  d.bandwidth = GBps(5);  // this and the peak until they are measured
  d.peak[Format::kFp32] = FlopsPerSecond(5e10);
  d.source = "read from the operating system and measured by stepcast calibrate";
  s.host.devices = session.local_size();
  s.host.cores = session.cores();
  s.host.shares_core = true;
  s.fabric.push_back({.name = "shared-memory",
                      .size = std::max<std::int64_t>(2, session.size()),
                      .bandwidth = GBps(1),
                      .latency = microseconds(1),
                      .oversubscription = 1,
                      .in_switch_reduction = false});
  return s;
}

CalibrationResult calibrate_cpu(const CalibrateOptions& options, runtime::MpiSession& session) {
  CalibrationResult result;
  result.system = local_machine(session);
  if (options.emulate != nullptr) {
    result.system.name = "local-cpu-paced";
    result.system.host.collectives_hold_core = false;
  }
  FitRows all;
  result.configurations = measure_jobs(all, result.system, options, budget_of(options), session);
  const OverlapRows overlap = measure_overlap(result.system, options, session);
  session.rank_zero_does([&] {
    set_measured_rates(result.system, all);
    models::FitOptions fit;
    fit.max_points = 600;
    fit.source = fmt::format("stepcast calibrate, {} small training jobs on {} ranks, {}",
                             result.configurations, session.size(), options.date);
    fit_steps(result.system, all, fit);
    result.system.fitted.merge(models::fit_slowdown(overlap.compute, fit));
    result.rows_csv = calibration_csv(all);
    result.dropped = dropped_records(all) + overlap.dropped;
  });
  return result;
}

std::string sweep_csv(const runtime::calibration::DeviceSweep& sweep) {
  FitRows rows;
  add_device_sweep(rows, sweep, kFlushedCaches * sweep.facts.l2);
  return calibration_csv(rows);
}

CalibrationResult calibrate_cuda(const runtime::calibration::DeviceSweep& sweep,
                                 CalibrateOptions options, runtime::MpiSession& session) {
  CalibrationResult result;
  options.fused_attention = session.from_rank_zero(sweep.fused_attention ? 1 : 0) == 1;
  result.system = measured_system(sweep, session.size(), session.local_size());
  FitRows all;
  result.configurations = measure_jobs(all, result.system, options, budget_of(options), session);
  if (result.configurations == 0) {
    throw RunError(fmt::format(
        "no training job fits the {:.1f} GB of this device; what was swept fits models with "
        "`stepcast fit`",
        result.system.device.memory.base() * 1e-9));
  }
  const OverlapRows overlap = measure_overlap(result.system, options, session);
  session.rank_zero_does([&] {
    add_device_sweep(all, sweep, kFlushedCaches * sweep.facts.l2);
    models::FitOptions fit;
    fit.max_points = 600;
    fit.source =
        fmt::format("stepcast calibrate, sweep of {} ops and {} training jobs on {} ranks, {}, {}",
                    sweep.samples.size(), result.configurations, session.size(), sweep.facts.name,
                    options.date);
    fit_steps(result.system, all, fit);
    result.system.fitted.merge(models::fit_slowdown(overlap.compute, fit));
    result.rows_csv = calibration_csv(all);
    result.dropped = dropped_records(all) + overlap.dropped;
  });
  return result;
}

}  // namespace stepcast::studies
