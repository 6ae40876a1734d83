#include "studies/traces/replay.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "core/device_names.h"
#include "core/error.h"
#include "simulator/reports/breakdown.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"
#include "studies/fit/error_statistics.h"
#include "studies/traces/step_times.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using Steps = std::span<const traces::MeasuredStep>;

Seconds step_of(const ExecutionGraph& graph, const simulator::StepCosts& costs) {
  return to_seconds(simulator::simulate(graph, costs).makespan);
}

double absolute_error(Seconds predicted, Seconds measured) {
  return std::abs(predicted / measured - 1);
}

/// The steps before `end` that ran the graph of the last of them.
Steps given(const std::vector<traces::MeasuredStep>& steps, std::size_t end) {
  std::size_t first = end - 1;
  while (first > 0 && steps[first - 1].graph == steps[end - 1].graph) {
    --first;
  }
  return Steps(steps).subspan(first, end - first);
}

/// A graph simulated, with when its steps ended where they are a chain.
struct Simulated {
  simulator::Timeline timeline;
  Seconds step, whole;
  std::optional<StepTimes> times;
};

Simulated simulated(const traces::MeasuredRun& run, const ExecutionGraph& graph,
                    const simulator::StepCosts& costs) {
  Simulated s;
  s.step = s.whole = to_seconds(simulator::simulate(graph, costs, {}, &s.timeline).makespan);
  if (run.chain() != nullptr) {
    s.times.emplace(*run.chain(), s.timeline);
    s.step = s.times->step();
  }
  return s;
}

/// Steps that ran one graph, simulated from their own times.
struct Replayed {
  Replayed(const traces::MeasuredRun& run, Steps of)
      : steps(of),
        costs(measured_costs(run, of)),
        simulated(studies::simulated(run, graph(), costs)) {}
  [[nodiscard]] const ExecutionGraph& graph() const { return *steps.front().graph; }

  Steps steps;
  simulator::StepCosts costs;
  Simulated simulated;
};

/// Steps that are replayed: all of a capture back to back, else those of the last graph.
Steps replayed_of(const traces::MeasuredRun& run) { return given(run.steps, run.steps.size()); }

Seconds median_time(std::span<const Seconds> times) {
  std::vector<double> all;
  for (const Seconds t : times) {
    all.push_back(t.base());
  }
  return seconds(median_of(std::move(all)));
}

/// For some of a run's steps.
Seconds median_wall(const traces::MeasuredRun& run, Steps steps) {
  const std::vector<Seconds> walls = wall_times(run);
  return median_time(std::span(walls).subspan(
      static_cast<std::size_t>(steps.data() - run.steps.data()), steps.size()));
}

/// A step of a chain predicts the one after it.
std::vector<Seconds> replayed_walls(const traces::MeasuredRun& run, const Replayed& whole) {
  std::vector<Seconds> walls;
  if (const auto& times = whole.simulated.times) {
    for (std::size_t k = 0; k + 1 < times->steps(); ++k) {
      walls.push_back(times->step(k));
    }
    return walls;
  }
  for (std::size_t k = 1; k < run.steps.size(); ++k) {
    const Steps known = given(run.steps, k);
    walls.push_back(step_of(*known.front().graph, measured_costs(run, known)));
  }
  return walls;
}

void predict_next_steps(const traces::MeasuredRun& run, const Replayed& whole, Replay& result) {
  std::vector<double> replayed, last, median;
  const std::vector<Seconds> walls = wall_times(run), again = replayed_walls(run, whole);
  // The step that fills the pipeline of a chain counts nowhere, nor predicts another.
  const std::size_t first = run.chain() != nullptr ? 1 : 0;
  for (std::size_t k = first + 1; k < walls.size(); ++k) {
    if (walls[k] <= Seconds{}) {
      continue;
    }
    replayed.push_back(absolute_error(again[k - 1], walls[k]));
    last.push_back(absolute_error(walls[k - 1], walls[k]));
    median.push_back(
        absolute_error(median_time(std::span(walls).subspan(first, k - first)), walls[k]));
  }
  if (!replayed.empty()) {
    result.next_step_error = median_of(replayed);
    result.last_step_error = median_of(last);
    result.median_step_error = median_of(median);
  }
}

simulator::Timeline recorded_timeline(const traces::MeasuredStep& step) {
  simulator::Timeline timeline;
  for (const traces::MeasuredRank& rank : step.ranks) {
    for (const OpSpan& s : rank.spans) {
      timeline.on_op(s);
    }
  }
  return timeline;
}

SimTime end_of(const simulator::Timeline& timeline, std::int32_t rank) {
  SimTime end{};
  for (const OpSpan& s : timeline.ops()) {
    end = rank < 0 || s.rank == rank ? std::max(end, s.end) : end;
  }
  return end;
}

/// Every run of steps of one graph from its own medians; medians over the graphs.
void replay_in_sample(const traces::MeasuredRun& run, const Replayed& last_of_all,
                      double host_bound_below, Replay& result) {
  std::vector<double> replayed, errors, scale_0, scale_2, shorter, longer;
  std::optional<Replayed> before;
  for (std::size_t end = run.steps.size(); end > 0;) {
    const Replayed& r =
        end == run.steps.size() ? last_of_all : before.emplace(run, given(run.steps, end));
    end -= r.steps.size();
    const Seconds step = r.simulated.step;
    const auto scaled = [&r, step](double factor) {
      simulator::StepCosts other = r.costs;
      scale_device_times(other, factor);
      return (step * (step_of(r.graph(), other) / r.simulated.whole)).base();
    };
    const Seconds measured =
        run.chain() != nullptr ? result.measured_step : median_wall(run, r.steps);
    replayed.push_back(step.base());
    errors.push_back(replayed.back() / measured.base() - 1);
    scale_0.push_back(scaled(0));
    scale_2.push_back(scaled(2));
    shorter.push_back(1 - scale_0.back() / replayed.back());
    longer.push_back(scale_2.back() / replayed.back() - 1);
  }
  result.replayed_step = seconds(median_of(replayed));
  result.error = median_of(errors);
  result.scale_0 = seconds(median_of(scale_0));
  result.scale_2 = seconds(median_of(scale_2));
  result.host_bound = median_of(shorter) < host_bound_below;
  result.unscored = median_of(longer) < host_bound_below;
}

/// Busy time and exposed transfers of a rank in the steps that count, per step.
std::pair<Seconds, Seconds> busy_of(const traces::MeasuredRun& run, const ExecutionGraph& graph,
                                    const simulator::Timeline& timeline, const StepTimes* times,
                                    std::int32_t rank) {
  SimTime begin{}, end = end_of(timeline, rank);
  double steps = 1;
  if (times != nullptr) {
    const auto& ends = times->of_rank(static_cast<std::size_t>(rank));
    begin = SimTime{ends[times->first_counted()]};
    end = SimTime{ends.back()};
    steps = static_cast<double>(times->steps() - times->first_counted());
  }
  const simulator::Breakdown parts = simulator::breakdown(
      graph.program_of(rank), timeline, rank,
      {.begin = begin, .end = end, .rank_end = end, .shares_core = run.shares_core});
  return {to_seconds(parts.compute) / steps, to_seconds(parts.exposed_communication) / steps};
}

/// The last step: of a chain within it, each side from the end of its own step before; else from
/// the steps before it (from itself if it is the only one).
void score_schedule(const traces::MeasuredRun& run, const Replayed& whole, Replay& result) {
  const traces::MeasuredStep& last = whole.steps.back();
  const bool alone = whole.steps.size() < 2;
  std::optional<Replayed> earlier;
  const Simulated& replayed =
      (alone ? whole : earlier.emplace(run, whole.steps.first(whole.steps.size() - 1))).simulated;
  const simulator::Timeline recorded = recorded_timeline(last);
  std::optional<StepTimes> recorded_times;
  std::int64_t replayed_from = 0, recorded_from = 0;
  if (run.chain() != nullptr) {
    recorded_times.emplace(last);
    const std::size_t before = recorded_times->steps() - 1;
    replayed_from = replayed.times->of_run()[before];
    recorded_from = recorded_times->of_run()[before];
  }
  const std::vector<OpSpan>& spans = replayed.timeline.ops();
  std::vector<std::uint32_t> order(spans.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  const auto by_op = [](const OpSpan& a, const OpSpan& b) {
    return std::tie(a.rank, a.ref) < std::tie(b.rank, b.ref);
  };
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return by_op(spans[a], spans[b]); });
  std::vector<double> errors;
  SimTime last_end{};  // calls of the host left aside
  for (const OpSpan& s : recorded.ops()) {
    const auto place =
        std::lower_bound(order.begin(), order.end(), s,
                         [&](std::uint32_t a, const OpSpan& b) { return by_op(spans[a], b); });
    const OpSpan* found = place == order.end() ? nullptr : &spans[*place];
    if (found != nullptr && !by_op(s, *found)) {
      last_end = std::max(last_end, found->end);
      if (ticks(s.begin) >= recorded_from) {
        errors.push_back(std::abs(static_cast<double>((ticks(found->begin) - replayed_from) -
                                                      (ticks(s.begin) - recorded_from))));
      }
    }
  }
  if (!errors.empty()) {
    result.kernel_start_p50 = Seconds(quantile_of(errors, 0.5) * 1e-12);
    result.kernel_start_p95 = Seconds(quantile_of(errors, 0.95) * 1e-12);
  }
  result.last_end_error = static_cast<double>((ticks(last_end) - replayed_from) -
                                              (ticks(end_of(recorded, -1)) - recorded_from)) /
                          std::max(1.0, wall_times(run).back().base() * 1e12);
  for (std::int32_t r = 0; r < last.graph->ranks(); ++r) {
    const auto a = busy_of(run, *last.graph, replayed.timeline,
                           replayed.times ? &*replayed.times : nullptr, r);
    const auto b =
        busy_of(run, *last.graph, recorded, recorded_times ? &*recorded_times : nullptr, r);
    result.by_rank.push_back({r, a.first, a.second, b.first, b.second});
  }
}

/// Why a what-if should not be relied on. `partial`: as move_collectives counts.
void doubt(const ReplayOptions& options, std::int64_t partial, Replay& result) {
  if (partial > 0) {
    result.doubts.push_back(
        fmt::format("not all members of {} collectives are in the trace: how long they waited for "
                    "each other is as recorded",
                    partial));
  }
  if (std::abs(result.error) > kDoubtfulReplay) {
    result.doubts.push_back(
        fmt::format("the replay without the change is {:+.1f} % off what was "
                    "measured",
                    100 * result.error));
  }
  if (options.change.device != nullptr && result.changed_share &&
      result.changed_share->device < kLeastCovered) {
    result.doubts.push_back(
        fmt::format("the models of the device cover {:.1f} % of the device "
                    "time, the rest is as recorded",
                    100 * result.changed_share->device));
  }
}

Job job_of(const traces::MeasuredRun& run, const ReplayOptions& options,
           const std::vector<std::string>& overrides) {
  if (run.job.empty()) {
    throw InputError(
        "trace",
        "carries no job, so it cannot be costed for another network, device or number of ranks; "
        "`stepcast job TRACE --out job.json` makes a job of its shapes, which predict and sweep "
        "take anywhere");
  }
  return config::load_job(config::text_source(run.job, "job of the trace"), overrides,
                          options.library);
}

/// System that a capture was recorded on, by what its profiler calls it.
System recorded_on(const traces::MeasuredRun& run, const ReplayOptions& options) {
  const auto from = device_named(run.device);
  if (!from) {
    throw InputError("--device",
                     fmt::format("needs to know what the trace was recorded on; it says "
                                 "\"{}\", which is none of `stepcast list devices`",
                                 run.device));
  }
  System system;
  system.device = config::load_device(std::string(from->device), options.library);
  return system;
}

/// The ranks asked for must be as many as a system joins.
void check_joined(const ReplayOptions& options, const System& system) {
  const std::int64_t joined =
      system.fabric.empty() ? 1 : system.devices_in_level(system.fabric.size() - 1);
  if (options.ranks > joined) {
    throw InputError("--ranks",
                     fmt::format("found {}, but {} system {} joins {} devices; give a "
                                 "larger one with --network, or fewer ranks",
                                 options.ranks,
                                 options.change.network != nullptr ? "--network's" : "the recorded",
                                 system.name, joined));
  }
}

struct Changed {
  ExecutionGraph graph;
  simulator::StepCosts costs;
  std::int64_t partial = 0;  ///< as move_collectives counts
};

/// The graph and costs with every change of the options applied.
Changed changed(const traces::MeasuredRun& run, const ReplayOptions& options) {
  const Steps known = replayed_of(run);
  simulator::StepCosts costs = measured_costs(run, known);
  ExecutionGraph graph = *known.front().graph;
  if (run.job.empty() && options.ranks == 0) {  // a capture: told by the shapes it recorded
    if (options.change.device != nullptr && move_kernels(known.front(), recorded_on(run, options),
                                                         *options.change.device, {}, costs) == 0) {
      throw InputError("--device",
                       "needs the shapes of the trace's kernels, and it tells none; record it with "
                       "shapes (PyTorch profiler: record_shapes=True)");
    }
  } else if (options.change.network != nullptr || options.change.device != nullptr ||
             options.ranks > 0) {
    const Job job = job_of(run, options, {});
    if (options.change.device != nullptr) {
      move_kernels(known.front(), job.system, *options.change.device, job.calibration, costs);
    }
    if (options.ranks > 0 && options.ranks != known.front().graph->ranks()) {
      std::vector<std::string> overrides{fmt::format("devices={}", options.ranks),
                                         "parallel.data=auto"};
      if (options.change.network != nullptr) {
        overrides.push_back("system=" + config::system_to_json(*options.change.network, -1));
      }
      check_joined(options,
                   options.change.network != nullptr ? *options.change.network : job.system);
      const Job wider = job_of(run, options, overrides);
      ExecutionGraph other = workloads::build_graph(wider);
      costs =
          carried_costs(graph, costs, other,
                        options.change.network != nullptr ? *options.change.network : wider.system,
                        wider.calibration);
      graph = std::move(other);
    }
  }
  std::int64_t partial = 0;
  if (options.change.network != nullptr) {
    partial = move_collectives(known.front().ranks, graph, *options.change.network, costs);
  }
  apply(options.change, graph, costs);
  return {std::move(graph), std::move(costs), partial};
}

void answer_what_if(const traces::MeasuredRun& run, const Replayed& whole,
                    const ReplayOptions& options, Replay& result) {
  const auto [graph, costs, partial] = changed(run, options);
  const Simulated with = simulated(run, graph, costs);
  const Simulated& without = whole.simulated;
  result.unchanged_step = without.step;
  result.change = with.whole / without.whole;
  result.changed_step = without.step * result.change;
  if (options.ranks == 0 || options.ranks == result.ranks) {
    result.changed_share = changed_share(graph, whole.costs, costs);
  }
  Seconds busy, busy_before;
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    const auto parts = busy_of(run, graph, with.timeline, with.times ? &*with.times : nullptr, r);
    result.changed_by_rank.push_back({r, parts.first, parts.second, {}, {}});
    busy += parts.first;
  }
  for (const ReplayedRank& rank : result.by_rank) {
    busy_before += rank.busy;
  }
  if (options.change.device != nullptr && busy_before > Seconds{}) {
    result.device_time_ratio = busy / busy_before;
  }
  result.host_decides = result.scale_0 > 0.5 * result.replayed_step;
  doubt(options, partial, result);
}

}  // namespace

Seconds replayed_step(const traces::MeasuredRun& run, const ReplayOptions& options) {
  const auto [graph, costs, partial] = changed(run, options);
  return simulated(run, graph, costs).step;
}

Replay replay(const traces::MeasuredRun& run, const ReplayOptions& options) {
  Replay result;
  result.ranks = run.steps.back().graph->ranks();
  result.steps = static_cast<std::int64_t>(run.step_count());
  result.steady = run.chain() != nullptr;
  result.marked_by = run.marked_by;
  result.measured_step =
      result.steady ? StepTimes(*run.chain()).step() : median_time(wall_times(run));
  result.warnings = run.warnings;
  result.dropped_records = run.dropped;
  const Replayed whole(run, replayed_of(run));
  replay_in_sample(run, whole, options.host_bound_below, result);
  predict_next_steps(run, whole, result);
  score_schedule(run, whole, result);
  std::int64_t stripped = 0;
  for (const traces::MeasuredStep& step : run.steps) {
    for (const traces::MeasuredRank& rank : step.ranks) {
      stripped += rank.stripped;
    }
  }
  result.stripped_wait =
      Seconds(static_cast<double>(stripped) * 1e-12 / static_cast<double>(result.steps));
  if (!options.change.empty() || options.ranks > 0) {
    answer_what_if(run, whole, options, result);
  }
  return result;
}

}  // namespace stepcast::studies
