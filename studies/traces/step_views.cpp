#include "studies/traces/step_views.h"

#include <algorithm>
#include <numeric>

#include "simulator/reports/timeline.h"
#include "studies/traces/internal/spans_by_time.h"

namespace stepcast::studies {
namespace {

using internal::SpansByTime;

std::vector<StepView> steps_apart(const traces::MeasuredRun& run) {
  std::vector<StepView> views;
  for (const traces::MeasuredStep& step : run.steps) {
    StepView view{step.number, step.wall, step.graph.get(), {}};
    for (const traces::MeasuredRank& rank : step.ranks) {
      view.ranks.push_back({rank.begin, rank.end, rank.spans, rank.spans, rank.host, std::nullopt});
    }
    views.push_back(std::move(view));
  }
  return views;
}

/// The host from the last work of a window until it has launched the next, or to the end.
HostSpan after_last(const RankView& view, const SpansByTime& spans, std::int32_t rank,
                    std::int32_t step) {
  std::int64_t from = view.begin, to = view.end;
  for (const OpSpan& s : view.ran) {
    from = std::max(from, ticks(s.end));
  }
  if (const OpSpan* next = spans.from(view.end)) {
    to = std::clamp(ticks(next->issued), from, to);
  }
  return {rank, step, HostSpan::Kind::kIssue, SimTime{from}, SimTime{to}};
}

RankView view_of(const traces::MeasuredStep& chain, const StepTimes& times, std::size_t s,
                 std::size_t r, const SpansByTime& spans) {
  const traces::MeasuredRank& rank = chain.ranks[r];
  RankView view;
  view.begin = times.of_rank(r)[s];
  view.end = times.of_rank(r)[s + 1];
  const auto [first, last] = traces::ops_of_step(rank, s);
  const auto span_at = [&rank](std::uint32_t op) {  // spans are in order of issue
    return std::lower_bound(rank.spans.begin(), rank.spans.end(), op,
                            [](const OpSpan& span, std::uint32_t o) { return span.ref.op < o; });
  };
  view.launched.assign(span_at(first), span_at(last));
  view.ran = spans.within(view.begin, view.end);
  view.host.push_back(
      after_last(view, spans, static_cast<std::int32_t>(r), static_cast<std::int32_t>(s)));
  view.issuing = to_seconds(SimTime{
      std::accumulate(rank.issue.begin() + first, rank.issue.begin() + last, std::int64_t{0})});
  return view;
}

/// Each rank's from the end of its step before.
std::vector<StepView> steps_of(const traces::MeasuredStep& chain) {
  const StepTimes times(chain);
  std::vector<SpansByTime> by_time;
  for (const traces::MeasuredRank& rank : chain.ranks) {
    by_time.emplace_back(rank.spans);
  }
  std::vector<StepView> views;
  for (std::size_t s = times.first_counted(); s < times.steps(); ++s) {
    StepView view{static_cast<std::int32_t>(s),
                  times.of_run()[s + 1] - times.of_run()[s],
                  chain.graph.get(),
                  {}};
    for (std::size_t r = 0; r < chain.ranks.size(); ++r) {
      view.ranks.push_back(view_of(chain, times, s, r, by_time[r]));
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace

std::vector<StepView> step_views(const traces::MeasuredRun& run) {
  return run.chain() != nullptr ? steps_of(*run.chain()) : steps_apart(run);
}

simulator::Breakdown parts_of(const StepView& step, std::size_t r) {
  const RankView& rank = step.ranks[r];
  const auto number = static_cast<std::int32_t>(r);
  simulator::Timeline timeline;
  for (const OpSpan& span : rank.ran) {
    timeline.on_op(span);
  }
  for (const HostSpan& span : rank.host) {
    timeline.on_host(span);
  }
  return simulator::breakdown(step.graph->program_of(number), timeline, number,
                              {.begin = SimTime{rank.begin},
                               .end = SimTime{rank.end},
                               .rank_end = SimTime{rank.end},
                               .shares_core = true});
}

std::int32_t critical_rank(const std::vector<StepView>& steps) {
  std::vector<std::int64_t> busy(steps.front().ranks.size(), 0);
  for (const StepView& step : steps) {
    for (std::size_t r = 0; r < busy.size(); ++r) {
      const simulator::Breakdown parts = parts_of(step, r);
      busy[r] += ticks(parts.compute) + ticks(parts.exposed_communication) + ticks(parts.host);
    }
  }
  return static_cast<std::int32_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
}

}  // namespace stepcast::studies
