#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "studies/traces/replay_costs.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

struct ReplayOptions {
  ReplayChange change;
  std::int64_t ranks = 0;  ///< what-if: the same job on so many ranks; 0 as recorded
  /// A run that gets shorter by less than this share when kernels are free is host-bound; one that
  /// gets longer by less when every device time doubles says nothing of device or network (rule
  /// R1).
  double host_bound_below = 0.05;
  config::Library library;  ///< where the job's workload and system are found
};

struct ReplayedRank {
  std::int32_t rank = 0;
  Seconds busy;                   ///< of some computing stream
  Seconds exposed_communication;  ///< transfers while nothing computes
  Seconds measured_busy, measured_exposed_communication;
};

/// A recorded run simulated again, scored by the rules R1 to R5 of reference
/// profiling-and-traces: waits are stripped, recorded ends are no input, every error has its
/// controls next to it, and steps that were not given are predicted.
struct Replay {
  std::int64_t ranks = 0, steps = 0;
  /// Captures: steady-state time of a step (StepTimes). Ours, whose steps are apart: median.
  Seconds measured_step;
  /// Captures: all steps back to back from their own times. Ours: from the medians of all steps (of
  /// one graph). In sample either way.
  Seconds replayed_step;
  double error = 0;          ///< ours: median over the graphs
  bool steady = false;       ///< steps run back to back
  std::string marked_by;     ///< traces::MeasuredRun
  /// The step with every device time times 0 and 2; of captures by the change of the whole
  /// recording.
  Seconds scale_0, scale_2;
  bool host_bound = false, unscored = false;
  /// Step k + 1 predicted from steps 1..k, for every k; medians of the absolute errors. The naive
  /// predictors: the step before, and the median of all steps before. -1 with a single step.
  double next_step_error = -1, last_step_error = -1, median_step_error = -1;
  /// |replayed - recorded begin| of every op of the last step, from the steps before it.
  Seconds kernel_start_p50, kernel_start_p95;
  double last_end_error = 0;  ///< error of the end of the last device op, share of the step
  std::vector<ReplayedRank> by_rank;
  Seconds stripped_wait;  ///< host time removed, per step, sum over ranks
  /// The what-if, if one was asked for: the step with the change, the same without it (captures:
  /// the replayed step; ours: that of the last graph), and the ratio (captures: of the whole
  /// recording, since where its first step ends moves too).
  std::optional<Seconds> changed_step, unchanged_step;
  double change = 1;
  /// Kernels' time on another device over the recorded. The host stays the recorded one, so the
  /// step's change says nothing where the host decides: it is more than half of the step.
  std::optional<double> device_time_ratio;
  bool host_decides = false;
  std::optional<ChangedShare> changed_share;  ///< not where the number of ranks changed
  std::vector<ReplayedRank> changed_by_rank;  ///< measured: 0
  std::vector<std::string> doubts;  ///< why the what-if should not be relied on; empty: no reason
  std::uint64_t dropped_records = 0;
  std::vector<std::string> warnings;
};

/// What-ifs are doubted from this error of the unchanged replay on, and below this share of device
/// time that another device's models cover.
constexpr double kDoubtfulReplay = 0.05;
constexpr double kLeastCovered = 0.8;

/// Errors: InputError when a change matches no op; when `network` or `ranks` is asked for and the
/// trace carries no job.
Replay replay(const traces::MeasuredRun& run, const ReplayOptions& options = {});

/// The recorded step and its medians simulated again, with nothing scored: what the guard and the
/// studies of what-if use.
Seconds replayed_step(const traces::MeasuredRun& run, const ReplayOptions& options);

}  // namespace stepcast::studies
