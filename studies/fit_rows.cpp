#include "studies/fit_rows.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/config/config.h"
#include "core/graph/op_codes.h"
#include "core/graph/op_traits.h"
#include "models/collectives/idle_time.h"
#include "models/cost_model.h"
#include "studies/fit/error_statistics.h"
#include "studies/internal/whole_steps.h"

namespace stepcast::studies {
namespace {

using internal::keep_whole_steps;
using internal::seconds_between;
using internal::Unused;
using internal::without;

/// Bytes that stand for a collective in the fits: the NCCL convention, an unequal exchange by the
/// equal one that moves as much.
double collective_bytes(const Program& program, const Op& op, std::size_t self, double size) {
  if (op.kind != OpKind::kAllToAllV) {
    return format_bytes(op.format, 1, op.shape[0]).base();
  }
  double moved = 0;
  const std::vector<double> send = program.exchange_of(op)->sent_by(self);
  for (std::size_t p = 0; p < send.size(); ++p) {
    moved += p == self ? 0 : send[p];
  }
  return moved * bits_per_element(op.format, 1) / 8 * size / (size - 1);
}

/// Why an op's duration says nothing to a fit; empty where it does.
std::string_view rejection(const Program& program, const Op& op) {
  const OpTraits& traits = traits_of(op.kind);
  if (traits.family == OpFamily::kLookup) {
    return program.group_of(op) == nullptr ? "no tables: the trace's job does not give them" : "";
  }
  if (traits.role == OpRole::kRankwise) {
    return program.exchange_of(op) == nullptr ? "no exchange: the trace's job does not give it"
                                              : "";
  }
  const bool sizeless =
      traits.collective != nullptr && traits.collective->pattern == CollectivePattern::kNoBytes;
  return !sizeless && op.shape[0] <= 0 ? "no shape" : "";
}

/// Time of each op template: the mean over its calls of their medians.
std::vector<Seconds> op_times(const Program& program,
                              const std::vector<traces::OpSamples>& samples) {
  std::vector<Seconds> total(program.ops.size());
  std::vector<double> calls(program.ops.size(), 0);
  for (const traces::OpSamples& s : samples) {
    if (!s.seconds.empty()) {
      total[s.ref.op] += seconds(median_of(s.seconds));
      ++calls[s.ref.op];
    }
  }
  for (std::size_t o = 0; o < total.size(); ++o) {
    total[o] = calls[o] > 0 ? total[o] / calls[o] : Seconds{};
  }
  return total;
}

/// A job without the machine it ran on. One that is not known is told by its name alone.
std::string program_of(Job job) {
  job.system = {};
  job.calibration = {};
  return config::job_to_json(job, -1);
}

/// Gathers the ops of one job's traced ranks as rows to fit: each local op once a template, each
/// collective in which all members end together once, by the member that waited least.
class OpRows {
 public:
  OpRows(FitRows& all, const Job& job, const ExecutionGraph& graph, const traces::GraphRun& trace,
         Unused& unused)
      : all_(all),
        job_(job),
        graph_(graph),
        trace_(trace),
        unused_(unused),
        program_id_(program_of(job)) {}

  void add_rank(const traces::RankTrace& rank) {
    const Program& program = graph_.program_of(rank.rank);
    std::map<std::uint32_t, std::vector<double>> by_template;
    const std::vector<traces::OpSamples> samples = traces::samples_of(trace_, rank.rank, 0);
    const std::vector<Seconds> idle_time =
        models::since_last_use(program, op_times(program, samples));
    for (const traces::OpSamples& s : samples) {
      if (s.seconds.empty()) {
        continue;
      }
      const Op& op = program.ops[s.ref.op];
      const double time = std::accumulate(s.seconds.begin(), s.seconds.end(), 0.0);
      const auto count = static_cast<std::int64_t>(s.seconds.size());
      all_.seconds += time;
      if (const std::string_view reason = rejection(program, op); !reason.empty()) {
        unused_.add(std::string(reason), program.name(op), count, time);
        continue;
      }
      const double measured = without(median_of(s.seconds), trace_.clock_cost);
      if (!is_collective(op.kind)) {
        by_template[s.ref.op].push_back(measured);
      } else if (op.communicator >= 0 && measured > 0) {
        add_collective(rank.rank, program, s.ref, seconds(measured), idle_time[s.ref.op]);
      } else if (op.communicator >= 0) {  // of one rank: nothing to do on a device
        unused_.add(kShorterThanTick, program.name(op), count);
      }
    }
    for (const auto& [o, typical] : by_template) {
      add_local(rank.rank, program, o, typical);
    }
  }

  /// After the last rank.
  void add_rendezvous() {
    for (const auto& [id, row] : least_) {
      const auto [call, op, first_member] = id;
      add_row(row, {program_id_, first_member, call, op}, "", {});
    }
  }

 private:
  static constexpr const char* kShorterThanTick = "shorter than the clock's tick";

  void add_collective(std::int32_t rank, const Program& program, OpRef ref, Seconds measured,
                      Seconds idle_time) {
    const Op& op = program.ops[ref.op];
    const auto members = graph_.members(op.communicator, rank);
    const auto self =
        static_cast<std::size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    const GroupShape group = group_shape(job_.system, members);
    const double bytes = collective_bytes(program, op, self, static_cast<double>(members.size()));
    const models::MeasuredCollective row{op.kind, bytes, group, measured, op.format, idle_time};
    const OpRole role = traits_of(op.kind).role;
    if (role != OpRole::kSymmetric && role != OpRole::kBroadcast) {  // each rank ends for itself
      add_row(row, {program_id_, rank, ref.call, ref.op}, program.name(op), codes_of(op).sizes);
      return;
    }
    const auto [it, fresh] = least_.try_emplace({ref.call, ref.op, members.front()}, row);
    if (!fresh && row.time < it->second.time) {
      it->second = row;
    }
  }

  void add_row(const models::MeasuredCollective& row, FitRows::Origin origin, std::string name,
               std::array<std::int64_t, 6> shape) {
    all_.collective_origins.push_back(std::move(origin));
    all_.add_collective(job_.workload.name, std::move(name), row, shape);
  }

  void add_local(std::int32_t rank, const Program& program, std::uint32_t o,
                 const std::vector<double>& typical) {
    const Op& op = program.ops[o];
    const double t = median_of(typical);
    const auto count = static_cast<std::int64_t>(typical.size());
    if (t <= 0) {
      unused_.add(kShorterThanTick, program.name(op), count);
      return;
    }
    all_.op_origins.push_back({program_id_, rank, 0, o});
    all_.add_op(job_.workload.name, program.name(op),
                {&program, &op, seconds(t), static_cast<std::int64_t>(all_.graphs.size()) - 1},
                count);
  }

  FitRows& all_;
  const Job& job_;
  const ExecutionGraph& graph_;
  const traces::GraphRun& trace_;
  Unused& unused_;
  std::string program_id_;
  /// By executed op and first member of its group: ranks of one class meet at equal ids.
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::int32_t>, models::MeasuredCollective>
      least_;
};

std::vector<const OpSpan*> compute_spans(const Program& program, const traces::RankTrace& rank,
                                         std::int32_t step) {
  std::vector<const OpSpan*> spans;
  for (const OpSpan& s : rank.ops) {
    if (s.step == step && program.ops[s.ref.op].stream == 0) {
      spans.push_back(&s);
    }
  }
  std::sort(spans.begin(), spans.end(),
            [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
  return spans;
}

/// The host's part of every step of one rank: issuing per op, gaps of the stream between ops, and
/// what is left of the step. `alone`: where steps and issuing were measured, if not with the ops.
void add_host(FitRows::HostOfJob& host, const Program& program, const traces::RankTrace& rank,
              const traces::GraphRun& trace, const traces::RankTrace* alone) {
  const traces::RankTrace& timed = alone != nullptr ? *alone : rank;
  const double recording = (trace.clock_cost + trace.store_cost).base();
  const auto executed = static_cast<double>(program.executed_ops());
  models::MeasuredHost steps;
  for (const traces::StepMark& kept : rank.steps) {
    const auto found = std::find_if(timed.steps.begin(), timed.steps.end(),
                                    [&](const auto& m) { return m.step == kept.step; });
    if (found == timed.steps.end()) {
      continue;
    }
    const traces::StepMark& mark = *found;
    std::int64_t issue = 0, busy = 0, gaps = 0, last_end = -1;
    double gap_count = 0;
    for (const OpSpan* s : compute_spans(program, rank, mark.step)) {
      busy += ticks(s->end) - ticks(s->begin);
      if (last_end >= 0 && ticks(s->issued) <= last_end) {
        gaps += ticks(s->begin) - last_end;
        ++gap_count;
        host.all.dispatch.push_back(
            std::max(0.0, seconds_between(SimTime{last_end}, s->begin) - recording));
      }
      last_end = ticks(s->end);
    }
    for (const HostSpan& s : timed.host) {
      issue += s.step == mark.step && s.kind == HostSpan::Kind::kIssue
                   ? ticks(s.end) - ticks(s.begin)
                   : 0;
    }
    const auto in_seconds = [](std::int64_t t) { return static_cast<double>(t) * 1e-12; };
    steps.issue.push_back(std::max(0.0, in_seconds(issue) / executed - trace.clock_cost.base()));
    if (gap_count > 0) {
      steps.dispatch.push_back(std::max(0.0, in_seconds(gaps) / gap_count - recording));
    }
    // A device works while the host issues: the longer of the two is what the step waits for.
    const std::int64_t known =
        trace.op_clock.empty() ? issue + busy + gaps : std::max(issue, busy + gaps);
    const double rest = in_seconds(ticks(mark.end) - ticks(mark.begin) - known);
    steps.step.push_back(std::max(0.0, rest));
  }
  const auto add_median = [](std::vector<double>& to, const std::vector<double>& from) {
    if (!from.empty()) {
      to.push_back(median_of(from));
    }
  };
  add_median(host.medians.issue, steps.issue);
  add_median(host.medians.dispatch, steps.dispatch);
  add_median(host.medians.step, steps.step);
  host.all.issue.insert(host.all.issue.end(), steps.issue.begin(), steps.issue.end());
  host.all.step.insert(host.all.step.end(), steps.step.begin(), steps.step.end());
}

/// For each step, the longest over the ranks.
std::vector<double> durations_of(const std::vector<traces::RankTrace>& ranks) {
  std::map<std::int32_t, double> longest;
  for (const traces::RankTrace& rank : ranks) {
    for (const traces::StepMark& m : rank.steps) {
      longest[m.step] = std::max(longest[m.step], seconds_between(m.begin, m.end));
    }
  }
  std::vector<double> durations;
  for (const auto& [step, seconds] : longest) {
    durations.push_back(seconds);
  }
  return durations;
}

/// Compute time of one rank's step between its rendezvous.
std::vector<double> segments_of(const ExecutionGraph& graph, const Program& program,
                                const traces::RankTrace& rank, std::int32_t step) {
  std::vector<double> segments{0};
  for (const OpSpan* s : compute_spans(program, rank, step)) {
    const Op& op = program.ops[s->ref.op];
    if (!is_collective(op.kind)) {
      segments.back() += seconds_between(s->begin, s->end);
    } else if (op.communicator >= 0 && graph.members(op.communicator, rank.rank).size() > 1) {
      segments.push_back(0);
    }
  }
  return segments;
}

/// Segments that are a twentieth of the rank's compute at least: shorter ones show the clock.
void add_segments(FitRows& all, const ExecutionGraph& graph, const traces::GraphRun& trace) {
  constexpr double kShortest = 0.05;
  for (const RankClass& c : graph.classes) {
    if (c.ranks.size() < 2) {
      continue;
    }
    const Program& program = graph.programs[static_cast<std::size_t>(c.program)];
    std::map<std::int32_t, std::vector<std::vector<double>>> by_step;  // [rank][segment]
    for (const traces::RankTrace& rank : trace.ranks) {
      if (std::find(c.ranks.begin(), c.ranks.end(), rank.rank) != c.ranks.end()) {
        for (const traces::StepMark& m : rank.steps) {
          by_step[m.step].push_back(segments_of(graph, program, rank, m.step));
        }
      }
    }
    std::vector<double> mean;
    for (const auto& [step, ranks] : by_step) {
      for (const std::vector<double>& segments : ranks) {
        mean.resize(std::max(mean.size(), segments.size()), 0.0);
        for (std::size_t k = 0; k < segments.size(); ++k) {
          mean[k] += segments[k] / static_cast<double>(by_step.size() * c.ranks.size());
        }
      }
    }
    double whole = 0;
    for (const double m : mean) {
      whole += m;
    }
    for (const auto& [step, ranks] : by_step) {
      for (std::size_t k = 0; k < mean.size() && ranks.size() == c.ranks.size(); ++k) {
        std::vector<double> times;
        for (const std::vector<double>& segments : ranks) {
          if (k < segments.size() && segments[k] > 0 && mean[k] >= kShortest * whole) {
            times.push_back(segments[k] / mean[k]);
          }
        }
        if (times.size() == ranks.size()) {
          all.segments.push_back(std::move(times));
        }
      }
    }
  }
}

}  // namespace

void FitRows::add_op(const std::string& workload, std::string name,
                     const models::MeasuredOp& measured, std::int64_t samples) {
  const Op& op = *measured.op;
  ops.push_back(measured);
  rows.push_back({workload, std::string(name_of(op.kind)), std::move(name), codes_of(op).sizes,
                  op.flops.base(), (op.bytes_read + op.bytes_written).base(), measured.time.base(),
                  samples});
}

void FitRows::add_collective(const std::string& workload, std::string name,
                             const models::MeasuredCollective& measured,
                             const std::array<std::int64_t, 6>& sizes) {
  collectives.push_back(measured);
  rows.push_back({workload, std::string(name_of(measured.kind)), std::move(name), sizes, 0,
                  measured.bytes, measured.time.base(), 1});
}

void FitRows::add_step(const std::string& workload, const StepSample& step, std::int64_t samples) {
  steps.push_back(step);
  rows.push_back({workload, "step", "", {}, step.flops, step.bytes, step.seconds, samples});
}

std::int64_t add_steps(FitRows& all, const Job& job, ExecutionGraph graph, traces::GraphRun trace,
                       const std::vector<traces::RankTrace>& alone) {
  Unused unused;
  std::vector<double> steps = keep_whole_steps(trace, unused);
  std::int64_t used = 0;
  if (!steps.empty()) {
    if (!alone.empty()) {
      steps = durations_of(alone);
    }
    const ExecutionGraph& kept = all.graphs.emplace_back(std::move(graph));
    if (trace.core_probe > Seconds{}) {
      all.core_probes.push_back(trace.core_probe.base());
    }
    OpRows ops(all, job, kept, trace, unused);
    for (const traces::RankTrace& rank : trace.ranks) {
      ops.add_rank(rank);
    }
    ops.add_rendezvous();
    all.hosts.push_back({program_of(job), median_of(steps), {}, {}});
    for (const traces::RankTrace& rank : trace.ranks) {
      add_host(all.hosts.back(), kept.program_of(rank.rank), rank, trace,
               alone.empty() ? nullptr : &alone.at(static_cast<std::size_t>(rank.rank)));
    }
    add_segments(all, kept, trace);
    all.add_step(job.workload.name, step_sample(kept, seconds(median_of(steps))),
                 static_cast<std::int64_t>(steps.size()));
    used = static_cast<std::int64_t>(trace.ranks.front().steps.size());
  }
  unused.move_to(all.unexplained);
  return used;
}

std::uint64_t dropped_records(const FitRows& rows) {
  std::uint64_t all = 0;
  for (const Unexplained& u : rows.unexplained) {
    all += u.reason == internal::kDropped ? static_cast<std::uint64_t>(u.count) : 0;
  }
  return all;
}

}  // namespace stepcast::studies
