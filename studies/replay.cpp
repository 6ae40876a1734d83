#include "studies/replay.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/device_names.h"
#include "core/error.h"
#include "simulator/reports/breakdown.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"
#include "studies/error_statistics.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

using Steps = std::span<const traces::MeasuredStep>;

Seconds step_of(const ExecutionGraph& graph, const simulator::StepCosts& costs) {
  return to_seconds(simulator::simulate(graph, costs).makespan);
}

Seconds wall_of(const traces::MeasuredStep& step) { return to_seconds(SimTime{step.wall}); }

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

Seconds median_wall(Steps steps) {
  std::vector<double> walls;
  for (const traces::MeasuredStep& s : steps) {
    walls.push_back(wall_of(s).base());
  }
  return seconds(median_of(walls));
}

void predict_next_steps(const traces::MeasuredRun& run, Replay& result) {
  std::vector<double> replayed, last, median;
  for (std::size_t k = 1; k < run.steps.size(); ++k) {
    const Steps known = given(run.steps, k);
    const Seconds measured = wall_of(run.steps[k]);
    replayed.push_back(
        absolute_error(step_of(*known.front().graph, measured_costs(run, known)), measured));
    last.push_back(absolute_error(wall_of(run.steps[k - 1]), measured));
    median.push_back(absolute_error(median_wall(Steps(run.steps).first(k)), measured));
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
void replay_in_sample(const traces::MeasuredRun& run, double host_bound_below, Replay& result) {
  std::vector<double> replayed, errors, scale_0, scale_2, longer;
  for (std::size_t end = run.steps.size(); end > 0;) {
    const Steps steps = given(run.steps, end);
    end -= steps.size();
    const ExecutionGraph& graph = *steps.front().graph;
    simulator::StepCosts costs = measured_costs(run, steps);
    const auto scaled = [&](double factor) {
      simulator::StepCosts other = costs;
      scale_device_times(other, factor);
      return step_of(graph, other).base();
    };
    replayed.push_back(step_of(graph, costs).base());
    errors.push_back(replayed.back() / median_wall(steps).base() - 1);
    scale_0.push_back(scaled(0));
    scale_2.push_back(scaled(2));
    longer.push_back(scale_2.back() / replayed.back() - 1);
  }
  result.replayed_step = seconds(median_of(replayed));
  result.error = median_of(errors);
  result.scale_0 = seconds(median_of(scale_0));
  result.scale_2 = seconds(median_of(scale_2));
  result.host_bound = median_of(longer) < host_bound_below;
}

/// The last step, from those before it (from itself if it is the only one).
void score_schedule(const traces::MeasuredRun& run, Replay& result) {
  const traces::MeasuredStep& last = run.steps.back();
  const bool alone = run.steps.size() < 2 || run.steps[run.steps.size() - 2].graph != last.graph;
  const Steps known = alone ? Steps(run.steps).last(1) : given(run.steps, run.steps.size() - 1);
  simulator::Timeline replayed;
  simulator::simulate(*last.graph, measured_costs(run, known), {}, &replayed);
  const simulator::Timeline recorded = recorded_timeline(last);

  std::map<std::pair<std::int32_t, OpRef>, SimTime> begins;
  for (const OpSpan& s : replayed.ops()) {
    begins[{s.rank, s.ref}] = s.begin;
  }
  std::vector<double> errors;
  for (const OpSpan& s : recorded.ops()) {
    const auto found = begins.find({s.rank, s.ref});
    if (found != begins.end()) {
      errors.push_back(std::abs(static_cast<double>(ticks(found->second) - ticks(s.begin))));
    }
  }
  if (!errors.empty()) {
    result.kernel_start_p50 = Seconds(quantile_of(errors, 0.5) * 1e-12);
    result.kernel_start_p95 = Seconds(quantile_of(errors, 0.95) * 1e-12);
  }
  result.last_end_error =
      static_cast<double>(ticks(end_of(replayed, -1)) - ticks(end_of(recorded, -1))) /
      static_cast<double>(last.wall);
  for (std::int32_t r = 0; r < last.graph->ranks(); ++r) {
    const auto parts = [&](const simulator::Timeline& timeline) {
      const SimTime end = end_of(timeline, r);
      return simulator::breakdown(
          last.graph->program_of(r), timeline, r,
          {.begin = {}, .end = end, .rank_end = end, .shares_core = run.shares_core});
    };
    const simulator::Breakdown a = parts(replayed), b = parts(recorded);
    result.by_rank.push_back({r, to_seconds(a.compute), to_seconds(a.exposed_communication),
                              to_seconds(b.compute), to_seconds(b.exposed_communication)});
  }
}

Job job_of(const traces::MeasuredRun& run, const ReplayOptions& options,
           const std::vector<std::string>& overrides) {
  if (run.job.empty()) {
    throw InputError(
        "trace",
        "carries no job, so nothing is known of its shapes, and it cannot be costed for "
        "another network, device or number of ranks; record it with `stepcast run --trace`");
  }
  return config::load_job(config::text_source(run.job, "job of the trace"), overrides,
                          options.library);
}

/// What a capture was recorded on, by what its profiler calls it.
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

/// The graph and costs with every change of the options applied.
std::pair<ExecutionGraph, simulator::StepCosts> changed(const traces::MeasuredRun& run,
                                                        const ReplayOptions& options) {
  const Steps known = given(run.steps, run.steps.size());
  simulator::StepCosts costs = measured_costs(run, known);
  ExecutionGraph graph = *known.front().graph;
  if (run.job.empty() && options.ranks == 0) {  // a capture: told by the shapes it recorded
    if (options.change.device != nullptr &&
        move_kernels(graph, recorded_on(run, options), *options.change.device, {}, costs) == 0) {
      throw InputError("--device",
                       "needs the shapes of the trace's kernels, and it tells none; record it with "
                       "shapes (PyTorch profiler: record_shapes=True)");
    }
  } else if (options.change.network != nullptr || options.change.device != nullptr ||
             options.ranks > 0) {
    // The trace has no embedding tables and send counts: the job's own graph has, op for op.
    const Job job = job_of(run, options, {});
    graph = workloads::build_graph(job);
    if (options.change.device != nullptr) {
      move_kernels(graph, job.system, *options.change.device, job.calibration, costs);
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
  apply(options.change, graph, costs);
  return {std::move(graph), std::move(costs)};
}

}  // namespace

Seconds replayed_step(const traces::MeasuredRun& run, const ReplayOptions& options) {
  const auto [graph, costs] = changed(run, options);
  return step_of(graph, costs);
}

Replay replay(const traces::MeasuredRun& run, const ReplayOptions& options) {
  Replay result;
  const Steps known = given(run.steps, run.steps.size());
  const ExecutionGraph& graph = *known.front().graph;
  result.ranks = graph.ranks();
  result.steps = static_cast<std::int64_t>(run.steps.size());
  result.measured_step = median_wall(run.steps);
  result.warnings = run.warnings;
  result.dropped_records = run.dropped;
  replay_in_sample(run, options.host_bound_below, result);
  predict_next_steps(run, result);
  score_schedule(run, result);
  std::int64_t stripped = 0;
  for (const traces::MeasuredStep& step : run.steps) {
    for (const traces::MeasuredRank& rank : step.ranks) {
      stripped += rank.stripped;
    }
  }
  result.stripped_wait =
      Seconds(static_cast<double>(stripped) * 1e-12 / static_cast<double>(run.steps.size()));
  if (!options.change.empty() || options.ranks > 0) {
    result.changed_step = replayed_step(run, options);
    result.unchanged_step = step_of(graph, measured_costs(run, known));
    result.change = *result.changed_step / *result.unchanged_step;
  }
  return result;
}

}  // namespace stepcast::studies
