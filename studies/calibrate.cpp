#include "studies/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>

#include "core/error.h"
#include "models/cost_model.h"
#include "models/fit/fit.h"
#include "runtime/launch.h"
#include "studies/error_statistics.h"
#include "studies/linear_baseline.h"
#include "studies/recorded_run.h"
#include "studies/runtime_cases.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using Clock = std::chrono::steady_clock;

/// A measured configuration: the graph must outlive the fit, which looks at its ops.
struct Configuration {
  Job job;
  ExecutionGraph graph;
};

/// Everything measured, ready for the fits.
struct Measurements {
  std::deque<Configuration> configurations;
  std::vector<models::MeasuredOp> ops;
  std::vector<models::MeasuredCollective> collectives;
  std::vector<std::pair<double, models::MeasuredHost>>
      hosts;  ///< by job: its step in seconds, and its host samples
  std::vector<MeasuredRow> rows;
  std::vector<StepSample> steps;
};

/// What the machine says of itself; rates come from the measurements.
System machine(const runtime::MpiSession& session) {
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
  d.source = "read from the operating system and measured by stepcast calibrate";
  s.host.devices = session.local_size();
  s.host.cores = runtime::available_cores();
  s.host.shares_core = true;
  s.fabric.push_back({.name = "shared-memory",
                      .size = std::max<std::int64_t>(2, session.size()),
                      .bandwidth = GBps(1),
                      .latency = microseconds(1),
                      .oversubscription = 1,
                      .in_switch_reduction = false});
  return s;
}

/// Bytes that stand for a collective in the fits: the NCCL convention, an unequal exchange by the
/// equal one that moves as much.
double collective_bytes(const Program& program, const Op& op, std::size_t self, double size) {
  if (op.kind != OpKind::kAllToAllV) {
    return format_bytes(op.format, 1, op.shape[0]).base();
  }
  double moved = 0;
  const auto& send = program.exchanges[static_cast<std::size_t>(op.detail)].send_elements;
  for (std::size_t p = 0; p < send.size(); ++p) {
    moved += p == self ? 0 : send[p];
  }
  return moved * bits_per_element(op.format, 1) / 8 * size / (size - 1);
}

void add_ops(Measurements& all, const Configuration& configuration, const traces::Trace& trace,
             std::int64_t index) {
  struct Rendezvous {
    models::MeasuredCollective row;
    double seconds;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Rendezvous>
      least;  // by executed op: ranks of one class meet at equal ids
  for (const traces::RankTrace& rank : trace.ranks) {
    const Program& program = configuration.graph.program_of(rank.rank);
    std::map<std::uint32_t, std::vector<double>> by_template;
    for (const traces::OpSamples& s : traces::samples_of(trace, rank.rank, 0)) {
      if (s.seconds.empty()) {
        continue;
      }
      const Op& op = program.ops[s.ref.op];
      const double typical = median_of(s.seconds);
      if (!is_collective(op.kind)) {
        by_template[s.ref.op].push_back(typical);
        continue;
      }
      if (op.communicator < 0) {
        continue;
      }
      const auto members = configuration.graph.members(op.communicator, rank.rank);
      const auto self = static_cast<std::size_t>(
          std::find(members.begin(), members.end(), rank.rank) - members.begin());
      const models::GroupShape group = models::group_shape(configuration.job.system, members);
      Rendezvous r{
          {op.kind, collective_bytes(program, op, self, static_cast<double>(members.size())), group,
           seconds(typical), op.format},
          typical};
      if (op.kind == OpKind::kAllToAllV || op.kind == OpKind::kSend || op.kind == OpKind::kRecv) {
        all.collectives.push_back(r.row);  // each rank ends for itself
        all.rows.push_back({configuration.job.workload.name, std::string(name_of(op.kind)),
                            program.name(op), op.shape, 0, r.row.bytes, typical, 1});
        continue;
      }
      const auto [it, fresh] = least.try_emplace({s.ref.call, s.ref.op}, r);
      if (!fresh && typical < it->second.seconds) {
        it->second = r;
      }
    }
    for (const auto& [o, typical] : by_template) {
      const Op& op = program.ops[o];
      const double t = median_of(typical);
      all.ops.push_back({&program, &op, seconds(t), index});
      all.rows.push_back({configuration.job.workload.name, std::string(name_of(op.kind)),
                          program.name(op), op.shape, op.flops.base(),
                          (op.bytes_read + op.bytes_written).base(), t,
                          static_cast<std::int64_t>(typical.size())});
    }
  }
  for (const auto& [id, r] : least) {
    all.collectives.push_back(r.row);
    all.rows.push_back({configuration.job.workload.name,
                        std::string(name_of(r.row.kind)),
                        "",
                        {},
                        0,
                        r.row.bytes,
                        r.seconds,
                        1});
  }
}

/// The host's part of every step of one rank: issuing per op, gaps of the stream between ops, and
/// what is left of the step.
void add_host(models::MeasuredHost& host, const ExecutionGraph& graph,
              const traces::RankTrace& rank) {
  const Program& program = graph.program_of(rank.rank);
  const auto executed = static_cast<double>(program.executed_ops());
  models::MeasuredHost steps;
  for (const traces::StepMark& mark : rank.steps) {
    std::int64_t issue = 0, busy = 0, gaps = 0, last_end = -1;
    double gap_count = 0;
    std::vector<const OpSpan*> spans;
    for (const OpSpan& s : rank.ops) {
      if (s.step == mark.step && program.ops[s.ref.op].stream == 0) {
        spans.push_back(&s);
      }
    }
    std::sort(spans.begin(), spans.end(),
              [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
    for (const OpSpan* s : spans) {
      busy += ticks(s->end) - ticks(s->begin);
      if (last_end >= 0 && ticks(s->issued) <= last_end) {
        gaps += ticks(s->begin) - last_end;
        ++gap_count;
      }
      last_end = ticks(s->end);
    }
    for (const HostSpan& s : rank.host) {
      issue += s.step == mark.step && s.kind == HostSpan::Kind::kIssue
                   ? ticks(s.end) - ticks(s.begin)
                   : 0;
    }
    const auto in_seconds = [](std::int64_t t) { return static_cast<double>(t) * 1e-12; };
    steps.issue.push_back(in_seconds(issue) / executed);
    if (gap_count > 0) {
      steps.dispatch.push_back(std::max(0.0, in_seconds(gaps) / gap_count));
    }
    const double rest = in_seconds(ticks(mark.end) - ticks(mark.begin) - issue - busy - gaps);
    steps.step.push_back(std::max(0.0, rest));
  }
  const auto add = [](std::vector<double>& to, const std::vector<double>& from) {
    if (!from.empty()) {
      to.push_back(median_of(from));
    }
  };
  add(host.issue, steps.issue);
  add(host.dispatch, steps.dispatch);
  add(host.step, steps.step);
}

/// Drops the slower half of the steps: whatever else the machine did meanwhile is in there.
void keep_quiet_steps(traces::Trace& trace, const std::vector<double>& step_seconds) {
  const double limit = median_of(step_seconds);
  const auto noisy = [&](const auto& record) {
    return step_seconds.at(static_cast<std::size_t>(record.step)) > limit;
  };
  for (traces::RankTrace& rank : trace.ranks) {
    std::erase_if(rank.ops, noisy);
    std::erase_if(rank.host, noisy);
    std::erase_if(rank.steps, noisy);
  }
}

void measure(Measurements& all, Configuration& configuration, const CalibrateOptions& options,
             runtime::MpiSession& session) {
  runtime::RunOptions run;
  // Short steps get more of them: caches and branch predictors take many steps of some hundred
  // microseconds to settle. The guess only decides how often a job runs, to a factor of some.
  const StepSample work = step_sample(configuration.graph, Seconds{});
  const double guess = 5e-5 + work.flops / 5e10 + work.bytes / 5e9;
  run.warmup = std::clamp<std::int64_t>(std::llround(0.05 / guess), 3, 20);
  run.steps = std::clamp<std::int64_t>(std::llround(0.2 / guess), options.quick ? 9 : 13, 60);
  run.seed = options.seed;
  run.real_time = true;
  run.emulate = options.emulate;
  RecordedRun recorded = run_recorded(configuration.job, configuration.graph, run, session);
  if (session.rank() != 0) {
    return;
  }
  std::vector<double> steps;
  for (const runtime::StepRecord& s : recorded.result.steps) {
    steps.push_back(s.time.base());
  }
  keep_quiet_steps(recorded.trace, steps);
  const auto index = static_cast<std::int64_t>(all.configurations.size());
  add_ops(all, configuration, recorded.trace, index);
  all.hosts.emplace_back(median_of(steps), models::MeasuredHost{});
  for (const traces::RankTrace& rank : recorded.trace.ranks) {
    add_host(all.hosts.back().second, configuration.graph, rank);
  }
  all.steps.push_back(step_sample(configuration.graph, seconds(median_of(steps))));
  all.rows.push_back({configuration.job.workload.name,
                      "step",
                      "",
                      {},
                      all.steps.back().flops,
                      all.steps.back().bytes,
                      median_of(steps),
                      static_cast<std::int64_t>(steps.size())});
}

/// Samples of the third of the jobs with the shortest steps: there the host's part matters, and
/// nothing large has pushed its code and data out of the caches between two ops.
models::MeasuredHost host_samples(Measurements& all) {
  std::sort(all.hosts.begin(), all.hosts.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  models::MeasuredHost samples;
  for (std::size_t i = 0; i < (all.hosts.size() + 2) / 3; ++i) {
    const models::MeasuredHost& of = all.hosts[i].second;
    samples.issue.insert(samples.issue.end(), of.issue.begin(), of.issue.end());
    samples.dispatch.insert(samples.dispatch.end(), of.dispatch.begin(), of.dispatch.end());
    samples.step.insert(samples.step.end(), of.step.begin(), of.step.end());
  }
  return samples;
}

/// Rates of the device as measured: the best of the matrix products and of the large streaming ops.
/// They are facts for people and for forms without constants; the fitted forms do not depend on
/// them.
void fill_device_rates(System& system, const Measurements& all) {
  double flops = 1e9;
  std::vector<double> rates;
  for (const models::MeasuredOp& m : all.ops) {
    if (m.op->kind == OpKind::kGemm) {
      flops = std::max(flops, m.op->flops.base() / m.time.base());
    } else if (class_of(m.op->kind) == OpClass::kMemoryBound &&
               (m.op->bytes_read + m.op->bytes_written).base() > 4e6) {
      rates.push_back((m.op->bytes_read + m.op->bytes_written).base() / m.time.base());
    }
  }
  system.device.peak[Format::kFp32] = FlopsPerSecond(flops);
  system.device.bandwidth = BytesPerSecond(rates.empty() ? 5e9 : median_of(rates));
  std::vector<double> links;
  double latency = 1e-3;
  for (const models::MeasuredCollective& c : all.collectives) {
    if (c.bytes > 1e6 && c.group.size > 1) {
      links.push_back(c.bytes / c.time.base());
    }
    latency = c.group.size > 1 ? std::min(latency, c.time.base()) : latency;
  }
  if (!links.empty()) {
    system.fabric[0].bandwidth = BytesPerSecond(median_of(links));
  }
  system.fabric[0].latency = seconds(latency);
}

}  // namespace

CalibrationResult calibrate_cpu(const CalibrateOptions& options, runtime::MpiSession& session) {
  CalibrationResult result;
  result.system = machine(session);
  if (options.emulate != nullptr) {
    result.system.name = "local-cpu-paced";
    result.system.host.collectives_hold_core = false;
  }
  Measurements all;
  const double budget = options.quick ? 40 : 220;
  const auto begin = Clock::now();
  const auto elapsed = [begin] {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Draw draw(options.seed);
  for (std::int64_t i = 0;; ++i) {
    // Kinds and bounds in turn, so that a short calibration has seen all of them.
    const CaseKind kind = i % 3 == 2 ? CaseKind::kTransformer : CaseKind::kDlrm;
    const Bound bound = static_cast<Bound>(i / 3 % 4);
    const bool more = session.from_rank_zero(elapsed() < budget || i < 12 ? 1 : 0) == 1;
    if (!more) {
      break;
    }
    Configuration configuration;
    try {
      configuration.job = draw_case(kind, bound, result.system, session.size(), draw);
      configuration.graph = workloads::build_graph(configuration.job);
    } catch (const InputError&) {
      continue;  // the draw does not split over these ranks; the next one will
    }
    if (session.rank() == 0 && options.progress) {
      options.progress(std::min(1.0, elapsed() / budget), configuration.job.workload.name);
    }
    all.configurations.push_back(std::move(configuration));
    measure(all, all.configurations.back(), options, session);
  }
  if (session.rank() != 0) {
    return result;
  }
  fill_device_rates(result.system, all);
  models::FitOptions fit;
  fit.max_points = 600;
  fit.source = fmt::format("stepcast calibrate, {} small training jobs on {} ranks, {}",
                           all.configurations.size(), session.size(), options.date);
  result.system.device.fitted = models::fit_kernels(result.system.device, all.ops, fit);
  result.system.fitted =
      models::fit_collectives(result.system, all.collectives, "collective.knee", fit);
  result.system.device.fitted.merge(models::fit_host(host_samples(all), fit));
  result.system.device.fitted["baseline"] = fit_linear_baseline(all.steps, fit.source);
  result.rows = std::move(all.rows);
  result.configurations = static_cast<std::int64_t>(all.configurations.size());
  return result;
}

}  // namespace stepcast::studies
