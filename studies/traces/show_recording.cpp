#include "studies/traces/show_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/statistics.h"
#include "studies/traces/step_times.h"
#include "traces/trace.h"

namespace stepcast::studies {
namespace {

/// One step as a trace of our own, each rank's window as its marks. With what runs in the window,
/// whoever launched it; or with what the step launched, wherever it runs.
traces::Trace trace_of(const traces::MeasuredStep& chain, const StepTimes& times, std::size_t s,
                       bool launched) {
  traces::Trace trace;
  trace.graph = *chain.graph;
  for (std::size_t r = 0; r < chain.ranks.size(); ++r) {
    const std::int64_t begin = times.of_rank(r)[s], end = times.of_rank(r)[s + 1];
    traces::RankTrace rank;
    rank.rank = static_cast<std::int32_t>(r);
    for (OpSpan span : chain.ranks[r].spans) {
      if (launched ? traces::step_of(chain.ranks[r], span.ref.op) == s + 1
                   : ticks(span.end) > begin && ticks(span.begin) < end) {
        for (SimTime* t : {&span.begin, &span.ready, &span.end}) {
          *t = launched ? *t : SimTime{std::clamp(ticks(*t), begin, end)};
        }
        rank.ops.push_back(span);
      }
    }
    rank.steps.push_back({0, SimTime{begin}, SimTime{end}});
    trace.ranks.push_back(std::move(rank));
  }
  return trace;
}

/// What the host did of its own between calls.
Seconds issuing(const traces::MeasuredRank& rank) {
  return to_seconds(SimTime{std::accumulate(rank.issue.begin(), rank.issue.end(), std::int64_t{0}) +
                            rank.finish});
}

/// Means over the steps of all that is a mean within one.
RankStep mean_of(const std::vector<RankStep>& steps) {
  RankStep mean = steps.front();
  std::vector<double> walls;
  for (const RankStep& s : steps) {
    walls.push_back(s.mean.base());
  }
  const auto average = [&steps](auto member) {
    auto sum = steps.front().*member;
    for (std::size_t i = 1; i < steps.size(); ++i) {
      sum += steps[i].*member;
    }
    return sum * (1.0 / static_cast<double>(steps.size()));
  };
  for (const auto member :
       {&RankStep::mean, &RankStep::compute, &RankStep::exposed_communication, &RankStep::bubble,
        &RankStep::host, &RankStep::other, &RankStep::communication, &RankStep::wait,
        &RankStep::issuing, &RankStep::caused_wait}) {
    mean.*member = average(member);
  }
  mean.last_arrivals = average(&RankStep::last_arrivals);
  mean.median = Seconds(quantile_of(walls, 0.5));
  mean.steps = static_cast<std::int64_t>(steps.size());
  return mean;
}

std::vector<RecordedOp> mean_of(const std::vector<std::vector<RecordedOp>>& steps) {
  std::map<std::tuple<std::string, OpKind, Phase>, RecordedOp> by_name;
  const double share = 1.0 / static_cast<double>(steps.size());
  for (const auto& ops : steps) {
    for (const RecordedOp& op : ops) {
      RecordedOp& sum = by_name.try_emplace({op.name, op.kind, op.phase}).first->second;
      if (sum.name.empty() || op.slowest_rank > sum.slowest_rank) {
        sum.slowest = op.slowest;
      }
      sum.name = op.name;
      sum.kind = op.kind;
      sum.phase = op.phase;
      sum.kernel = op.kernel;
      sum.executions += op.executions * share;
      sum.time += op.time * share;
      sum.wait += op.wait * share;
      sum.fastest_rank += op.fastest_rank * share;
      sum.slowest_rank += op.slowest_rank * share;
    }
  }
  std::vector<RecordedOp> all;
  for (auto& [key, op] : by_name) {
    all.push_back(std::move(op));
  }
  std::stable_sort(all.begin(), all.end(), [](const RecordedOp& a, const RecordedOp& b) {
    return a.time + a.wait > b.time + b.wait;
  });
  return all;
}

}  // namespace

RecordedStep recorded_step(const traces::MeasuredRun& run, std::int32_t skip) {
  if (run.chain == nullptr) {
    throw InputError("trace", "its steps overlap on the host; were several runs joined?");
  }
  const StepTimes times(*run.chain);
  const std::size_t first =
      std::max(times.first_counted(), static_cast<std::size_t>(std::max(0, skip)));
  if (first >= times.steps()) {
    throw InputError("--skip", fmt::format("{} leaves none of {} steps", skip, times.steps()));
  }
  RecordedStep all;
  std::vector<std::vector<RankStep>> by_rank;
  std::vector<std::vector<RecordedOp>> ops;
  std::vector<double> walls;
  for (std::size_t s = first; s < times.steps(); ++s) {
    RecordedStep one = recorded_step(trace_of(*run.chain, times, s, false));
    RecordedStep launched = recorded_step(trace_of(*run.chain, times, s, true));
    by_rank.resize(one.by_rank.size());
    for (std::size_t r = 0; r < one.by_rank.size(); ++r) {
      RankStep& row = one.by_rank[r];
      row.issuing = issuing(run.steps[s].ranks[r]);
      row.last_arrivals = launched.by_rank[r].last_arrivals;
      row.caused_wait = launched.by_rank[r].caused_wait;
      by_rank[r].push_back(row);
    }
    ops.push_back(std::move(launched.ops));
    walls.push_back(times.step(s).base());
  }
  for (const auto& steps : by_rank) {
    all.by_rank.push_back(mean_of(steps));
  }
  all.ops = mean_of(ops);
  all.ranks = static_cast<std::int64_t>(all.by_rank.size());
  all.steps = static_cast<std::int64_t>(times.steps());
  all.first_counted = static_cast<std::int64_t>(first);
  all.marked_by = run.marked_by;
  all.step = to_seconds(SimTime{times.of_run().back() - times.of_run()[first]}) /
             static_cast<double>(times.steps() - first);
  all.median = Seconds(quantile_of(walls, 0.5));
  all.p5 = Seconds(quantile_of(walls, 0.05));
  all.p95 = Seconds(quantile_of(walls, 0.95));
  all.dropped = run.dropped;
  all.warnings = run.warnings;
  fill_bound(all);
  return all;
}

}  // namespace stepcast::studies
