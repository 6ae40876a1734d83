#include "studies/traces/show_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/graph/op_traits.h"
#include "core/statistics.h"

namespace stepcast::studies {
namespace {

Seconds between(SimTime begin, SimTime end) {
  return to_seconds(SimTime{ticks(end) - ticks(begin)});
}

/// Spans of one rank by step.
std::map<std::int32_t, simulator::Timeline> timelines_of(const traces::RankTrace& rank) {
  std::map<std::int32_t, simulator::Timeline> steps;
  for (const OpSpan& span : rank.ops) {
    steps[span.step].on_op(span);
  }
  for (const HostSpan& span : rank.host) {
    steps[span.step].on_host(span);
  }
  return steps;
}

/// Everything of a rank that its own records say.
RankStep rank_step(const traces::Trace& trace, const traces::RankTrace& rank, std::int32_t skip) {
  RankStep row;
  row.rank = rank.rank;
  row.dropped = rank.dropped;
  row.clock_offset = to_seconds(rank.clock_offset);
  row.clock_residual = rank.clock_residual;
  const Program& program = trace.graph.program_of(rank.rank);
  const auto timelines = timelines_of(rank);
  const simulator::Timeline nothing;
  std::vector<double> walls;
  for (const traces::StepMark& mark : rank.steps) {
    if (mark.step < skip) {
      continue;
    }
    const auto found = timelines.find(mark.step);
    const simulator::Timeline& timeline = found == timelines.end() ? nothing : found->second;
    // The recorded host thread issues on the rank's own core: whatever it does while nothing else
    // runs is host time.
    const simulator::Breakdown parts = simulator::breakdown(
        program, timeline, rank.rank,
        {.begin = mark.begin, .end = mark.end, .rank_end = mark.end, .shares_core = true});
    walls.push_back(between(mark.begin, mark.end).base());
    row.compute += to_seconds(parts.compute);
    row.exposed_communication += to_seconds(parts.exposed_communication);
    row.bubble += to_seconds(parts.bubble);
    row.host += to_seconds(parts.host);
    row.other += to_seconds(parts.other);
    for (const OpSpan& span : timeline.ops()) {
      if (is_collective(program.ops.at(span.ref.op).kind)) {
        row.communication += between(span.ready, span.end);
        row.wait += between(span.begin, span.ready);
      }
    }
    for (const HostSpan& span : timeline.hosts()) {
      if (span.kind == HostSpan::Kind::kIssue) {
        row.issuing += between(span.begin, span.end);
      } else if (span.kind == HostSpan::Kind::kQueueFull) {
        row.queue_full += between(span.begin, span.end);
      }
    }
  }
  if (walls.empty()) {
    throw InputError("--skip", fmt::format("{} leaves no step of rank {}", skip, rank.rank));
  }
  row.steps = static_cast<std::int64_t>(walls.size());
  row.median = seconds(median_of(walls));
  for (const double w : walls) {
    row.mean += Seconds(w);
  }
  for (Seconds* t : {&row.mean, &row.compute, &row.exposed_communication, &row.bubble, &row.host,
                     &row.other, &row.communication, &row.wait, &row.issuing, &row.queue_full}) {
    *t *= 1.0 / static_cast<double>(row.steps);
  }
  return row;
}

/// One collective of one group in one step. Point-to-point ops are left out: their partners never
/// both wait.
using Meeting = std::tuple<std::int32_t /*communicator*/, std::int32_t /*first member*/,
                           std::int32_t /*step*/, std::int64_t /*sequence*/>;

bool all_members_meet(const Op& op) {
  return is_collective(op.kind) && op.communicator >= 0 && !is_point_to_point(op.kind) &&
         op.kind != OpKind::kBroadcast;
}

/// Who came last to each collective, and what the others waited for it.
void blame_last(const traces::Trace& trace, std::int32_t skip, std::vector<RankStep>& rows) {
  std::map<Meeting, std::vector<std::pair<std::int64_t, std::size_t>>> arrivals;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const traces::RankTrace& rank = trace.ranks[r];
    const Program& program = trace.graph.program_of(rank.rank);
    std::map<std::int32_t, std::int32_t> first_member;
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> next;
    std::vector<const OpSpan*> order;
    for (const OpSpan& span : rank.ops) {
      if (span.step >= skip && all_members_meet(program.ops.at(span.ref.op))) {
        order.push_back(&span);
      }
    }
    std::stable_sort(order.begin(), order.end(), [](const OpSpan* a, const OpSpan* b) {
      return std::tie(a->step, a->ref) < std::tie(b->step, b->ref);
    });
    for (const OpSpan* span : order) {
      const std::int32_t communicator = program.ops[span->ref.op].communicator;
      const auto [first, fresh] = first_member.try_emplace(communicator, 0);
      if (fresh) {
        const auto members = trace.graph.members(communicator, rank.rank);
        first->second = members.empty() ? rank.rank : members.front();
      }
      const std::int64_t sequence = next[{communicator, span->step}]++;
      arrivals[{communicator, first->second, span->step, sequence}].push_back(
          {ticks(span->begin), r});
    }
  }
  for (const auto& [meeting, members] : arrivals) {
    if (members.size() < 2) {
      continue;
    }
    const auto last = *std::max_element(members.begin(), members.end());
    std::int64_t waited = 0;
    for (const auto& [begin, rank] : members) {
      waited += last.first - begin;
    }
    RankStep& row = rows[last.second];
    row.last_arrivals += 1.0 / static_cast<double>(row.steps);
    row.caused_wait += to_seconds(SimTime{waited}) / static_cast<double>(row.steps);
  }
}

std::vector<RecordedOp> recorded_ops(const traces::Trace& trace, std::int32_t skip,
                                     const std::vector<RankStep>& rows) {
  struct Sum {
    double executions = 0, flops = 0, bytes = 0;
    Seconds time, wait;
    KernelKind kernel = KernelKind::kOther;
  };
  using Key = std::tuple<std::string, OpKind, Phase>;
  std::map<Key, std::map<std::int32_t, Sum>> sums;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const traces::RankTrace& rank = trace.ranks[r];
    const Program& program = trace.graph.program_of(rank.rank);
    std::vector<Sum> templates(program.ops.size());
    for (const OpSpan& span : rank.ops) {
      if (span.step < skip) {
        continue;
      }
      const Op& op = program.ops.at(span.ref.op);
      const bool collective = is_collective(op.kind);
      Sum& s = templates[span.ref.op];
      s.executions += 1;
      s.time += between(span.ready, span.end);
      s.wait += between(span.begin, span.ready);
      s.flops += op.flops.base();
      s.bytes += collective ? span.bytes : (op.bytes_read + op.bytes_written).base();
    }
    const double per_step = 1.0 / static_cast<double>(rows[r].steps);
    for (std::size_t o = 0; o < templates.size(); ++o) {
      const Sum& t = templates[o];
      if (t.executions > 0) {
        const Op& op = program.ops[o];
        Sum& s = sums[{program.name(op), op.kind, op.phase}][rank.rank];
        s.kernel = kernel_kind_of(op);
        s.executions += t.executions * per_step;
        s.time += t.time * per_step;
        s.wait += t.wait * per_step;
        s.flops += t.flops * per_step;
        s.bytes += t.bytes * per_step;
      }
    }
  }
  std::vector<RecordedOp> ops;
  for (const auto& [key, by_rank] : sums) {
    RecordedOp op;
    std::tie(op.name, op.kind, op.phase) = key;
    op.fastest_rank = Seconds(std::numeric_limits<double>::infinity());
    const double share = 1.0 / static_cast<double>(by_rank.size());
    double flops = 0;
    double bytes = 0;
    for (const auto& [rank, s] : by_rank) {
      op.kernel = s.kernel;
      op.executions += s.executions * share;
      op.time += s.time * share;
      op.wait += s.wait * share;
      flops += s.flops * share;
      bytes += s.bytes * share;
      op.fastest_rank = std::min(op.fastest_rank, s.time);
      if (s.time > op.slowest_rank) {
        op.slowest_rank = s.time;
        op.slowest = rank;
      }
    }
    if (op.time > Seconds{}) {
      op.flops_per_second = flops / op.time.base();
      op.bytes_per_second = bytes / op.time.base();
    }
    ops.push_back(std::move(op));
  }
  std::stable_sort(ops.begin(), ops.end(), [](const RecordedOp& a, const RecordedOp& b) {
    return a.time + a.wait > b.time + b.wait;
  });
  return ops;
}

}  // namespace

void fill_bound(RecordedStep& step) {
  const auto busy = [](const RankStep& r) { return r.compute + r.exposed_communication + r.host; };
  Seconds mean;
  Seconds slowest;
  const RankStep* critical = &step.by_rank.front();
  for (const RankStep& r : step.by_rank) {
    mean += r.compute / static_cast<double>(step.by_rank.size());
    slowest = std::max(slowest, r.compute);
    critical = busy(r) > busy(*critical) ? &r : critical;
  }
  step.imbalance = mean > Seconds{} ? slowest / mean - 1 : 0;
  step.critical_rank = critical->rank;
  const std::array<std::pair<const char*, Seconds>, 5> parts{
      {{"compute", critical->compute},
       {"exposed communication", critical->exposed_communication},
       {"waiting for other ranks", critical->bubble},
       {"host", critical->host},
       {"gaps", critical->other}}};
  const auto largest = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  step.bound = largest->first;
  step.bound_share = critical->mean > Seconds{} ? largest->second / critical->mean : 0;
}

RecordedStep recorded_step(const traces::Trace& trace, std::int32_t skip) {
  RecordedStep step;
  if (trace.ranks.empty()) {
    throw InputError("trace", "holds no rank");
  }
  for (const traces::RankTrace& rank : trace.ranks) {
    step.by_rank.push_back(rank_step(trace, rank, skip));
    step.dropped += rank.dropped;
  }
  blame_last(trace, skip, step.by_rank);
  step.ops = recorded_ops(trace, skip, step.by_rank);
  const std::vector<double> walls = traces::step_seconds(trace, skip);
  step.ranks = static_cast<std::int64_t>(trace.ranks.size());
  step.steps = static_cast<std::int64_t>(walls.size());
  step.median = seconds(median_of(walls));
  step.step = step.median;
  step.p5 = seconds(quantile_of(walls, 0.05));
  step.p95 = seconds(quantile_of(walls, 0.95));
  fill_bound(step);
  if (step.dropped > 0) {
    step.warnings.push_back(fmt::format(
        "the recorder dropped {} records: times of ops are too low, gaps too long", step.dropped));
  }
  if (trace.op_clock == "events") {
    step.warnings.push_back(
        fmt::format("ops were timed by CUDA events around each, which cost the device and the host "
                    "time of their own ({})",
                    trace.op_clock_reason));
  }
  for (const RankStep& r : step.by_rank) {
    if (r.clock_residual > 0.01 * r.median) {
      step.warnings.push_back(
          fmt::format("rank {}: clocks agree only within {:.3g} us, over 1 % of its step; waits "
                      "shorter than that are noise",
                      r.rank, r.clock_residual / microseconds(1)));
    }
  }
  return step;
}

}  // namespace stepcast::studies
