#include "studies/traces/recorded_step.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/statistics.h"
#include "studies/traces/step_views.h"

namespace stepcast::studies {
namespace {

Seconds between(SimTime begin, SimTime end) {
  return to_seconds(SimTime{ticks(end) - ticks(begin)});
}

/// Everything of a rank that its own records say.
RankStep rank_step(const std::vector<StepView>& steps, std::size_t r) {
  RankStep row;
  row.rank = static_cast<std::int32_t>(r);
  std::vector<double> walls;
  for (const StepView& step : steps) {
    const Program& program = step.graph->program_of(row.rank);
    const RankView& rank = step.ranks[r];
    const simulator::Breakdown parts = parts_of(step, r);
    walls.push_back(between(SimTime{rank.begin}, SimTime{rank.end}).base());
    row.compute += to_seconds(parts.compute);
    row.exposed_communication += to_seconds(parts.exposed_communication);
    row.bubble += to_seconds(parts.bubble);
    row.host += to_seconds(parts.host);
    row.other += to_seconds(parts.other);
    row.issuing += rank.issuing.value_or(Seconds{});
    for (const OpSpan& span : rank.ran) {
      if (is_collective(program.ops.at(span.ref.op).kind)) {
        row.communication += between(span.ready, span.end);
        row.wait += between(span.begin, span.ready);
      }
    }
    for (const HostSpan& span : rank.host) {
      if (span.kind == HostSpan::Kind::kIssue && !rank.issuing) {
        row.issuing += between(span.begin, span.end);
      } else if (span.kind == HostSpan::Kind::kQueueFull) {
        row.queue_full += between(span.begin, span.end);
      }
    }
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
  return is_collective(op.kind) && op.communicator >= 0 && op.kind != OpKind::kSend &&
         op.kind != OpKind::kRecv && op.kind != OpKind::kBroadcast;
}

/// Who came last to each collective, and what the others waited for it.
void blame_last(const std::vector<StepView>& steps, std::vector<RankStep>& rows) {
  std::map<Meeting, std::vector<std::pair<std::int64_t, std::size_t>>> arrivals;
  for (const StepView& step : steps) {
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      const Program& program = step.graph->program_of(rows[r].rank);
      std::map<std::int32_t, std::int32_t> first_member;
      std::map<std::int32_t, std::int64_t> next;
      std::vector<const OpSpan*> order;
      for (const OpSpan& span : step.ranks[r].launched) {
        if (all_members_meet(program.ops.at(span.ref.op))) {
          order.push_back(&span);
        }
      }
      std::stable_sort(order.begin(), order.end(),
                       [](const OpSpan* a, const OpSpan* b) { return a->ref < b->ref; });
      for (const OpSpan* span : order) {
        const std::int32_t communicator = program.ops[span->ref.op].communicator;
        const auto [first, fresh] = first_member.try_emplace(communicator, 0);
        if (fresh) {
          const auto members = step.graph->members(communicator, rows[r].rank);
          first->second = members.empty() ? rows[r].rank : members.front();
        }
        arrivals[{communicator, first->second, step.number, next[communicator]++}].push_back(
            {ticks(span->begin), r});
      }
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

std::vector<RecordedOp> recorded_ops(const std::vector<StepView>& steps,
                                     const std::vector<RankStep>& rows) {
  struct Sum {
    double executions = 0, flops = 0, bytes = 0;
    Seconds time, wait;
    KernelKind kernel = KernelKind::kOther;
  };
  using Key = std::tuple<std::string, OpKind, Phase>;
  std::map<Key, std::map<std::int32_t, Sum>> sums;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::map<const Program*, std::vector<Sum>> by_program;
    for (const StepView& step : steps) {
      const Program& program = step.graph->program_of(rows[r].rank);
      std::vector<Sum>& templates = by_program[&program];
      templates.resize(program.ops.size());
      for (const OpSpan& span : step.ranks[r].launched) {
        const Op& op = program.ops.at(span.ref.op);
        const bool collective = is_collective(op.kind);
        Sum& s = templates[span.ref.op];
        s.executions += 1;
        s.time += between(span.ready, span.end);
        s.wait += between(span.begin, span.ready);
        s.flops += op.flops.base();
        s.bytes += collective ? span.bytes : (op.bytes_read + op.bytes_written).base();
      }
    }
    const double per_step = 1.0 / static_cast<double>(rows[r].steps);
    for (const auto& [program, templates] : by_program) {
      for (std::size_t o = 0; o < templates.size(); ++o) {
        const Sum& t = templates[o];
        if (t.executions > 0) {
          const Op& op = program->ops[o];
          Sum& s = sums[{program->name(op), op.kind, op.phase}][rows[r].rank];
          s.kernel = kernel_kind_of(op);
          s.executions += t.executions * per_step;
          s.time += t.time * per_step;
          s.wait += t.wait * per_step;
          s.flops += t.flops * per_step;
          s.bytes += t.bytes * per_step;
        }
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

/// Sums up `by_rank`: the critical rank, where its time goes, the imbalance.
void sum_up(RecordedStep& step) {
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
  step.mostly = largest->first;
  step.mostly_share = critical->mean > Seconds{} ? largest->second / critical->mean : 0;
}

/// Adds what the recorders say of themselves.
void add_clocks(const traces::MeasuredRun& run, RecordedStep& step) {
  if (run.dropped > 0 && run.of_our_own()) {
    step.warnings.push_back(fmt::format(
        "the recorder dropped {} records: times of ops are too low, gaps too long", run.dropped));
  }
  if (run.op_clock == "events") {
    step.warnings.push_back(
        fmt::format("ops were timed by CUDA events around each, which cost the device and the host "
                    "time of their own ({})",
                    run.op_clock_reason));
  }
  for (std::size_t r = 0; r < run.clocks.size(); ++r) {
    RankStep& row = step.by_rank[r];
    row.dropped = run.clocks[r].dropped;
    row.clock_offset = to_seconds(run.clocks[r].offset);
    row.clock_residual = run.clocks[r].residual;
    if (row.clock_residual > 0.01 * row.median) {
      step.warnings.push_back(
          fmt::format("rank {}: clocks agree only within {:.3g} us, over 1 % of its step; waits "
                      "shorter than that are noise",
                      row.rank, row.clock_residual / microseconds(1)));
    }
  }
}

}  // namespace

RecordedStep recorded_step(const traces::MeasuredRun& run, std::int32_t skip) {
  std::optional<StepTimes> times;
  if (run.chain() != nullptr) {
    times.emplace(*run.chain());
  }
  std::vector<StepView> steps = step_views(run);
  std::erase_if(steps, [skip](const StepView& s) { return s.number < skip; });
  if (steps.empty()) {
    throw InputError("--skip", fmt::format("{} leaves none of {} steps", skip,
                                           times ? times->steps() : run.steps.size()));
  }
  RecordedStep all;
  std::vector<double> walls;
  for (const StepView& s : steps) {
    walls.push_back(to_seconds(SimTime{s.wall}).base());
  }
  for (std::size_t r = 0; r < steps.front().ranks.size(); ++r) {
    all.by_rank.push_back(rank_step(steps, r));
  }
  blame_last(steps, all.by_rank);
  all.ops = recorded_ops(steps, all.by_rank);
  for (RecordedOp& op : all.ops) {
    if (times) {  // every kernel of an operator's call carries the work of the whole call
      op.flops_per_second = op.bytes_per_second = 0;
    }
  }
  all.ranks = static_cast<std::int64_t>(all.by_rank.size());
  all.steps = static_cast<std::int64_t>(times ? times->steps() : walls.size());
  all.first_counted = times ? steps.front().number : 0;
  all.marked_by = run.marked_by;
  all.median = seconds(median_of(walls));
  all.step =
      times ? to_seconds(SimTime{times->of_run().back() -
                                 times->of_run()[static_cast<std::size_t>(all.first_counted)]}) /
                  static_cast<double>(walls.size())
            : all.median;
  all.p5 = seconds(quantile_of(walls, 0.05));
  all.p95 = seconds(quantile_of(walls, 0.95));
  all.dropped = run.dropped;
  if (times) {
    all.warnings = run.warnings;
  }
  sum_up(all);
  add_clocks(run, all);
  return all;
}

}  // namespace stepcast::studies
