#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "studies/replay_costs.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

struct ReplayOptions {
  ReplayChange change;
  std::int64_t ranks = 0;  ///< what-if: the same job on so many ranks; 0 as recorded
  /// A case whose step moves by less than this share when every device time doubles is host-bound
  /// (rule R1) and says nothing of device or network.
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
/// controls beside it, and steps that were not given are predicted.
struct Replay {
  std::int64_t ranks = 0, steps = 0;
  Seconds measured_step;     ///< median over the steps
  Seconds replayed_step;     ///< from the medians of all steps (of one graph): in sample
  double error = 0;          ///< median over the graphs
  Seconds scale_0, scale_2;  ///< step with every device time times 0 and 2
  bool host_bound = false;
  /// Step k + 1 predicted from steps 1..k, for every k; medians of the absolute errors. The naive
  /// predictors: the step before, and the median of all steps before. -1 with a single step.
  double next_step_error = -1, last_step_error = -1, median_step_error = -1;
  /// |replayed - recorded begin| of every op of the last step, from the steps before it.
  Seconds kernel_start_p50, kernel_start_p95;
  double last_end_error =
      0;  ///< error of the end of the last device op, share of the step, likewise
  std::vector<ReplayedRank> by_rank;
  Seconds stripped_wait;  ///< host time removed, per step, sum over ranks
  /// The what-if, if one was asked for: the last graph's step with the change, the same without it,
  /// and the ratio. A record of one graph has its replayed step unchanged.
  std::optional<Seconds> changed_step, unchanged_step;
  double change = 1;
  std::uint64_t dropped_records = 0;
  std::vector<std::string> warnings;
};

/// Errors: InputError when a change matches no op; when `network` or `ranks` is asked for and the
/// trace carries no job.
Replay replay(const traces::MeasuredRun& run, const ReplayOptions& options = {});

/// The recorded step and its medians simulated again, with nothing scored: what the guard and the
/// studies of what-if use.
Seconds replayed_step(const traces::MeasuredRun& run, const ReplayOptions& options);

}  // namespace stepcast::studies
