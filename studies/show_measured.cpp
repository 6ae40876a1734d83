#include "studies/show_measured.h"

#include <algorithm>
#include <map>

#include "simulator/reports/critical_path.h"
#include "simulator/simulate.h"
#include "studies/replay_costs.h"

namespace stepcast::studies {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;
using Intervals = std::vector<Interval>;

Seconds of_ticks(std::int64_t t) { return to_seconds(SimTime{t}); }

/// Sorted and joined.
Intervals joined(Intervals all) {
  std::sort(all.begin(), all.end());
  Intervals result;
  for (const Interval& i : all) {
    if (!result.empty() && i.first <= result.back().second) {
      result.back().second = std::max(result.back().second, i.second);
    } else {
      result.push_back(i);
    }
  }
  return result;
}

std::int64_t covered(const Intervals& intervals, std::int64_t begin, std::int64_t end) {
  std::int64_t sum = 0;
  auto at = std::lower_bound(intervals.begin(), intervals.end(), begin,
                             [](const Interval& i, std::int64_t t) { return i.second <= t; });
  for (; at != intervals.end() && at->first < end; ++at) {
    sum += std::min(end, at->second) - std::max(begin, at->first);
  }
  return sum;
}

/// What the other streams do, the sets one inside the next.
struct Others {
  Intervals transfer, or_wait, or_compute;
};

Others others_of(const Program& program, const std::vector<OpSpan>& spans, std::uint8_t main) {
  Others o;
  for (const OpSpan& s : spans) {
    const Op& op = program.ops[s.ref.op];
    if (op.stream == main) {
      continue;
    }
    if (is_collective(op.kind)) {
      o.transfer.emplace_back(ticks(s.ready), ticks(s.end));
      o.or_wait.emplace_back(ticks(s.begin), ticks(s.end));
    }
    o.or_compute.emplace_back(ticks(s.begin), ticks(s.end));
  }
  o.transfer = joined(std::move(o.transfer));
  o.or_wait = joined(std::move(o.or_wait));
  o.or_compute = joined(std::move(o.or_compute));
  return o;
}

std::uint8_t main_stream(const Program& program, const std::vector<OpSpan>& spans) {
  std::vector<std::int64_t> busy(program.streams.size(), 0);
  for (const OpSpan& s : spans) {
    const Op& op = program.ops[s.ref.op];
    busy[op.stream] += is_collective(op.kind) ? 0 : ticks(s.end) - ticks(s.begin);
  }
  return static_cast<std::uint8_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
}

void add_queue(const std::vector<OpSpan>& spans, StreamUse& use, double weight) {
  std::vector<std::int64_t> issued, ended;
  for (const OpSpan& s : spans) {
    issued.push_back(ticks(s.issued));
    ended.push_back(ticks(s.end));
  }
  std::sort(issued.begin(), issued.end());
  std::sort(ended.begin(), ended.end());
  std::size_t done = 0;
  double sum = 0;
  for (std::size_t i = 0; i < issued.size(); ++i) {
    while (done < ended.size() && ended[done] <= issued[i]) {
      ++done;
    }
    const auto depth = static_cast<std::int64_t>(i + 1) - static_cast<std::int64_t>(done);
    use.queue_most = std::max(use.queue_most, depth);
    sum += static_cast<double>(std::max<std::int64_t>(0, depth));
  }
  use.queue_mean += spans.empty() ? 0 : weight * sum / static_cast<double>(spans.size());
}

void add_step(const traces::MeasuredStep& step, std::size_t r, StreamUse& use, double weight) {
  const Program& program = step.graph->program_of(static_cast<std::int32_t>(r));
  const traces::MeasuredRank& rank = step.ranks[r];
  const std::uint8_t main = main_stream(program, rank.spans);
  const Others others = others_of(program, rank.spans, main);
  use.stream = program.streams[main];
  std::vector<const OpSpan*> order;
  std::int64_t end = rank.end;
  for (const OpSpan& s : rank.spans) {
    end = std::max(end, ticks(s.end));
    if (program.ops[s.ref.op].stream == main) {
      order.push_back(&s);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
  const auto add = [weight](Seconds& sum, std::int64_t t) { sum += of_ticks(t) * weight; };
  std::int64_t at = rank.begin;
  for (const OpSpan* s : order) {
    const std::int64_t begin = std::max(at, ticks(s->begin));
    const std::int64_t launched = std::clamp(ticks(s->issued), at, begin);
    const std::int64_t transfer = covered(others.transfer, launched, begin);
    const std::int64_t wait = covered(others.or_wait, launched, begin);
    const std::int64_t busy = covered(others.or_compute, launched, begin);
    add(use.host, launched - at);
    add(use.for_communication, transfer);
    add(use.for_rank, wait - transfer);
    add(use.for_stream, busy - wait);
    add(use.gap, begin - launched - busy);
    const std::int64_t stop = std::max(begin, ticks(s->end));
    if (is_collective(program.ops[s->ref.op].kind)) {
      const std::int64_t ready = std::clamp(ticks(s->ready), begin, stop);
      add(use.for_rank, ready - begin);
      add(use.communication, stop - ready);
    } else {
      add(use.compute, stop - begin);
    }
    at = stop;
  }
  add(use.drain, std::max<std::int64_t>(0, end - at));
  add(use.step, end - rank.begin);
  add_queue(rank.spans, use, weight);
}

using Key = std::pair<std::string, OpKind>;

void add_kernels(const traces::MeasuredStep& step, std::map<Key, MeasuredKernel>& kernels,
                 double weight) {
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const Program& program = step.graph->program_of(static_cast<std::int32_t>(r));
    for (const OpSpan& s : step.ranks[r].spans) {
      const Op& op = program.ops[s.ref.op];
      MeasuredKernel& k = kernels[{program.name(op), op.kind}];
      k.name = program.name(op);
      k.kind = op.kind;
      k.launches += weight;
      k.time += of_ticks(ticks(s.end) - ticks(s.ready)) * weight;
    }
  }
}

/// Of the last step, replayed from its own times.
void add_critical_path(const traces::MeasuredRun& run, std::map<Key, MeasuredKernel>& kernels,
                       MeasuredShow& show) {
  const traces::MeasuredStep& last = run.steps.back();
  const simulator::StepCosts costs = measured_costs(run, {&last, 1});
  simulator::Timeline timeline;
  simulator::simulate(*last.graph, costs, {}, &timeline);
  const simulator::CriticalPath path = simulator::critical_path(*last.graph, costs, timeline);
  show.path_host = to_seconds(path.host);
  show.path_compute = to_seconds(path.compute);
  show.path_transfer = to_seconds(path.transfer);
  show.path_gap = to_seconds(path.gap);
  const auto kernel_of = [&](std::int32_t rank, OpRef ref) {
    const Program& program = last.graph->program_of(rank);
    const Op& op = program.ops[ref.op];
    const auto found = kernels.find({program.name(op), op.kind});
    return found == kernels.end() ? nullptr : &found->second;
  };
  for (const simulator::CriticalPath::Piece& p : path.pieces) {
    using Part = simulator::CriticalPath::Part;
    MeasuredKernel* k =
        p.part == Part::kCompute || p.part == Part::kTransfer ? kernel_of(p.rank, p.ref) : nullptr;
    if (k != nullptr) {
      k->on_critical_path += of_ticks(ticks(p.end) - ticks(p.begin));
    }
  }
  std::map<const MeasuredKernel*, bool> seen;
  for (std::size_t i = 0; i < timeline.ops().size(); ++i) {
    if (MeasuredKernel* k = kernel_of(timeline.ops()[i].rank, timeline.ops()[i].ref)) {
      const Seconds slack = to_seconds(path.slack[i]);
      k->slack = seen[k] ? std::min(k->slack, slack) : slack;
      seen[k] = true;
    }
  }
}

}  // namespace

MeasuredShow show_measured(const traces::MeasuredRun& run) {
  MeasuredShow show;
  const double weight = 1.0 / static_cast<double>(run.steps.size());
  std::map<Key, MeasuredKernel> kernels;
  show.ranks.resize(run.steps.front().ranks.size());
  for (const traces::MeasuredStep& step : run.steps) {
    for (std::size_t r = 0; r < step.ranks.size(); ++r) {
      show.ranks[r].rank = static_cast<std::int32_t>(r);
      add_step(step, r, show.ranks[r], weight);
    }
    add_kernels(step, kernels, weight);
  }
  add_critical_path(run, kernels, show);
  for (auto& [key, kernel] : kernels) {
    show.kernels.push_back(std::move(kernel));
  }
  std::stable_sort(
      show.kernels.begin(), show.kernels.end(),
      [](const MeasuredKernel& a, const MeasuredKernel& b) { return a.time > b.time; });
  return show;
}

}  // namespace stepcast::studies
