#include "traces/measured_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace stepcast::traces {
namespace {

/// Mean between the 5th and 95th percentile: sums over ops need means, hiccups must not count.
std::int64_t trimmed_mean(std::vector<std::int64_t> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const std::size_t cut = values.size() / 20;
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(cut);
  const auto last = values.end() - static_cast<std::ptrdiff_t>(cut);
  return std::accumulate(first, last, std::int64_t{0}) / (last - first);
}

/// Records are in order where one thread wrote them.
template <typename T, typename Before>
void sort_unless_sorted(std::vector<T>& values, const Before& before) {
  if (!std::is_sorted(values.begin(), values.end(), before)) {
    std::stable_sort(values.begin(), values.end(), before);
  }
}

/// Sum and count by op template.
struct Means {
  explicit Means(std::size_t templates) : sum(templates, 0), count(templates, 0) {}
  void add(std::uint32_t op, std::int64_t value) {
    sum[op] += value;
    ++count[op];
  }
  [[nodiscard]] std::vector<std::int64_t> means() const {
    std::vector<std::int64_t> result(sum.size(), -1);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      result[i] = count[i] > 0 ? (sum[i] + count[i] / 2) / count[i] : -1;
    }
    return result;
  }
  std::vector<std::int64_t> sum, count;
};

void measure_host(MeasuredRank& rank, const Program& program) {
  TimeSpans blocked;
  for (const HostSpan& h : rank.host) {
    if (h.kind == HostSpan::Kind::kQueueFull) {
      blocked.emplace_back(ticks(h.begin), ticks(h.end));
    }
  }
  std::sort(blocked.begin(), blocked.end());
  Means issue(program.ops.size());
  std::int64_t last = 0;
  for (const OpSpan& s : rank.spans) {
    const std::int64_t waited = covered(blocked, last, ticks(s.issued));
    issue.add(s.ref.op, std::max<std::int64_t>(0, ticks(s.issued) - last - waited));
    rank.stripped += waited;
    last = std::max(last, ticks(s.issued));
  }
  rank.issue = issue.means();
  std::replace(rank.issue.begin(), rank.issue.end(), std::int64_t{-1}, std::int64_t{0});
}

/// Times in which the rank's core computed, joined.
TimeSpans computing(const std::vector<const OpSpan*>& order, const Program& program) {
  TimeSpans busy;
  for (const OpSpan* s : order) {
    if (is_collective(program.ops[s->ref.op].kind)) {
      continue;
    }
    if (!busy.empty() && ticks(s->begin) <= busy.back().second) {
      busy.back().second = std::max(busy.back().second, ticks(s->end));
    } else {
      busy.emplace_back(ticks(s->begin), ticks(s->end));
    }
  }
  return busy;
}

/// `one_core`: a transfer needs the core, so what the rank computed meanwhile is no part of it.
void measure_device(MeasuredRank& rank, const Program& program, bool one_core) {
  Means duration(program.ops.size());
  std::vector<std::int64_t> gaps, free(program.streams.size(), -1);
  std::int64_t last = 0;
  std::vector<const OpSpan*> order;
  order.reserve(rank.spans.size());
  for (const OpSpan& s : rank.spans) {
    order.push_back(&s);
  }
  sort_unless_sorted(order, [](const OpSpan* a, const OpSpan* b) { return a->begin < b->begin; });
  const auto busy = computing(order, program);
  for (const OpSpan* s : order) {
    const Op& op = program.ops[s->ref.op];
    const std::int64_t computed =
        one_core && is_collective(op.kind) ? covered(busy, ticks(s->ready), ticks(s->end)) : 0;
    duration.add(s->ref.op, ticks(s->end) - ticks(s->ready) - computed);
    std::int64_t& before = free[op.stream];
    if (before >= 0 && ticks(s->issued) <= before && op.waits == 0) {
      gaps.push_back(std::max<std::int64_t>(0, ticks(s->begin) - before));
    }
    before = ticks(s->end);
    last = std::max({last, ticks(s->end), ticks(s->issued)});
  }
  rank.duration = duration.means();
  rank.dispatch = trimmed_mean(std::move(gaps));
  rank.finish = std::max<std::int64_t>(0, rank.end - last);
}

void ascend(std::vector<std::int64_t>& ends) {
  for (std::size_t i = 1; i < ends.size(); ++i) {
    ends[i] = std::max(ends[i], ends[i - 1]);
  }
}

}  // namespace

std::int64_t covered(const TimeSpans& spans, std::int64_t begin, std::int64_t end) {
  std::int64_t sum = 0;
  auto at = std::lower_bound(spans.begin(), spans.end(), begin,
                             [](const TimeSpan& i, std::int64_t t) { return i.second <= t; });
  for (; at != spans.end() && at->first < end; ++at) {
    sum += std::min(end, at->second) - std::max(begin, at->first);
  }
  return sum;
}

std::size_t step_of(const MeasuredRank& rank, std::uint32_t op) {
  if (op < rank.carried) {
    return 0;
  }
  const auto mark =
      std::lower_bound(rank.step_marks.begin(), rank.step_marks.end(), op,
                       [](const MeasuredRank::StepEnd& m, std::uint32_t o) { return m.op < o; });
  return static_cast<std::size_t>(mark - rank.step_marks.begin()) + 1;
}

std::pair<std::uint32_t, std::uint32_t> ops_of_step(const MeasuredRank& rank, std::size_t step) {
  return {step == 0 ? rank.carried : rank.step_marks[step - 1].op + 1,
          rank.step_marks[step].op + 1};
}

std::vector<std::int64_t> simulated_step_ends(const MeasuredRank& rank, std::int32_t number,
                                              std::span<const OpSpan> spans) {
  std::vector<std::int64_t> ends(rank.step_marks.size() + 1, rank.begin);
  for (const OpSpan& s : spans) {
    const std::size_t step = s.rank == number ? step_of(rank, s.ref.op) : ends.size();
    if (step < ends.size()) {
      ends[step] = std::max(ends[step], ticks(s.end));
    }
  }
  ascend(ends);
  return ends;
}

std::vector<std::int64_t> recorded_step_ends(const MeasuredRank& rank) {
  std::vector<std::int64_t> ends{rank.begin};
  for (std::uint32_t o = 0; o < rank.carried; ++o) {
    ends[0] = std::max(ends[0], rank.begin + rank.duration[o]);
  }
  for (const MeasuredRank::StepEnd& m : rank.step_marks) {
    ends.push_back(m.end);
  }
  for (const OpSpan& s : rank.spans) {
    const std::size_t step = step_of(rank, s.ref.op);
    if (step < ends.size()) {
      ends[step] = std::max(ends[step], ticks(s.end));
    }
  }
  ascend(ends);
  return ends;
}

MeasuredRun measured_run(const GraphRun& trace) {
  MeasuredRun run;
  run.job = trace.job;
  run.shares_core = trace.shares_core;
  run.collectives_hold_core = trace.collectives_hold_core;
  run.op_clock = trace.op_clock;
  run.op_clock_reason = trace.op_clock_reason;
  run.core_probe = trace.core_probe;
  const auto graph = std::make_shared<const ExecutionGraph>(trace.graph);
  struct Parts {
    std::map<std::int32_t, std::vector<OpSpan>> spans;  // by rank
    std::map<std::int32_t, std::vector<HostSpan>> host;
    std::map<std::int32_t, const StepMark*> marks;
  };
  std::map<std::int32_t, Parts> by_step;
  for (const RankTrace& rank : trace.ranks) {
    run.dropped += rank.dropped;
    run.clocks.push_back({rank.dropped, rank.clock_offset, rank.clock_residual});
    std::vector<OpSpan>* spans = nullptr;  // of the step that the span before was of
    for (const OpSpan& s : rank.ops) {
      if (spans == nullptr || spans->back().step != s.step) {
        const std::size_t before = spans == nullptr ? 0 : spans->size();
        spans = &by_step[s.step].spans[rank.rank];
        spans->reserve(before);
      }
      spans->push_back(s);
    }
    for (const HostSpan& h : rank.host) {
      by_step[h.step].host[rank.rank].push_back(h);
    }
    for (const StepMark& m : rank.steps) {
      by_step[m.step].marks[rank.rank] = &m;
    }
  }
  if (run.dropped > 0) {
    run.warnings.push_back(
        fmt::format("the recorder dropped {} records; replayed times are too low", run.dropped));
  }
  for (auto& [number, parts] : by_step) {
    const auto ranks = static_cast<std::size_t>(graph->ranks());
    if (parts.marks.size() != ranks || parts.spans.size() != ranks) {
      run.warnings.push_back(fmt::format("step {} is not whole: {} of {} ranks marked it", number,
                                         parts.marks.size(), ranks));
      continue;
    }
    MeasuredStep step{graph, number, 0, {}};
    std::int64_t origin = ticks(parts.marks.begin()->second->begin), end = 0;
    for (const auto& [rank, mark] : parts.marks) {
      origin = std::min(origin, ticks(mark->begin));
      end = std::max(end, ticks(mark->end));
    }
    step.wall = end - origin;
    for (auto& [number_of_rank, spans] : parts.spans) {
      const Program& program = graph->program_of(number_of_rank);
      MeasuredRank rank;
      rank.begin = ticks(parts.marks[number_of_rank]->begin) - origin;
      rank.end = ticks(parts.marks[number_of_rank]->end) - origin;
      sort_unless_sorted(spans, [](const OpSpan& a, const OpSpan& b) { return a.ref < b.ref; });
      for (OpSpan& s : spans) {
        const auto shift = [origin](SimTime& t) { t = SimTime{ticks(t) - origin}; };
        shift(s.issued), shift(s.begin), shift(s.ready), shift(s.end);
      }
      rank.spans = std::move(spans);
      rank.host = std::move(parts.host[number_of_rank]);
      for (HostSpan& h : rank.host) {
        h.begin = SimTime{ticks(h.begin) - origin};
        h.end = SimTime{ticks(h.end) - origin};
      }
      measure_host(rank, program);
      measure_device(rank, program, trace.shares_core && trace.collectives_hold_core);
      step.ranks.push_back(std::move(rank));
    }
    run.steps.push_back(std::move(step));
  }
  if (run.steps.empty()) {
    throw InputError("trace", "holds no complete step; record at least one step after the warm-up");
  }
  return run;
}

}  // namespace stepcast::traces
