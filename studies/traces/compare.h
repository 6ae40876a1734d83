#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "studies/fit_rows.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// Predicted against measured for one op kind, or one named op of one phase, of one rank and step.
struct ComparisonRow {
  std::string name;
  std::string kind;
  std::int64_t executions = 0;
  Seconds predicted, measured;            ///< collectives: transfer only
  Seconds predicted_wait, measured_wait;  ///< collectives: waiting for other members
  /// Share of the step's error that this row explains: (predicted - measured) / measured step; the
  /// rows of a table sum to the step's.
  double contribution = 0;
};

/// Bytes that the exchanges of one purpose send in a step, all ranks together.
struct ComparedTraffic {
  std::string kind;
  double predicted = 0;
  double counted = 0;  ///< by the ranks, mean of the steps
};

/// One op kind of a recorded run: its distinct ops priced by the models, against what they took.
struct ComparedKind {
  std::string kind;
  std::int64_t distinct = 0, calls = 0;
  Seconds predicted, measured;  ///< sums over calls, per step and rank; collectives: transfer only
  double median = 0, mean = 0, p90 = 0;  ///< |predicted / measured - 1| over distinct ops
  double in_range = 0;                   ///< share of the distinct ops inside what was fitted
  std::optional<Seconds> job;            ///< what the job's own graph has of this kind
};

/// A recording against its prediction.
struct Comparison {
  std::string workload, system;
  std::int64_t ranks = 0, steps = 0;
  Seconds measured;                  ///< of the whole step: the median
  std::optional<Seconds> predicted;  ///< of the job
  std::uint64_t dropped_records = 0;
  std::vector<std::string> warnings;

  /// Op by op, on the predicted critical rank: where the graph that ran is known.
  struct ByOp {
    std::int32_t rank = 0;
    double error = 0;                    ///< predicted / measured - 1, of the step
    double spread = 0;                   ///< (p95 - p5) / median of the measured steps
    std::vector<ComparisonRow> by_kind;  ///< closing rows: "host and gaps", what no op of a step
                                         ///< took; "beyond the medians", what steps took longer
                                         ///< than the medians of their parts
    std::vector<ComparisonRow> by_name;
    std::vector<ComparedTraffic> traffic;
  };
  std::optional<ByOp> by_op;

  /// By shape: what the models say of each distinct op that a capture of another program tells the
  /// shape of (shaped_work.h), against its median time.
  struct ByShape {
    std::vector<ComparedKind> kinds;  ///< by time
    Seconds wait;                     ///< in collectives, for the last member; per step and rank
    std::vector<Unexplained> unexplained;
    double seconds = 0;  ///< of device work over all ranks and steps, waits left out
  };
  std::optional<ByShape> by_shape;
};

/// Compares a recorded run with its prediction on the job's system: of a run of our own runtime
/// `predicted`, whose ops carry the ids of those that ran; of a capture of any program its kernels
/// and collectives, and `predicted`, where the job is known: its kinds on the critical rank, and
/// its step. Errors: InputError when the ops of `predicted` are not those that ran, and when a
/// capture tells no shape.
Comparison compare(const traces::MeasuredRun& run, const Job& job, const ExecutionGraph* predicted);

/// A run's graph must have the ops of a job's. Errors: InputError naming what differs.
void require_same_ops(const ExecutionGraph& ran, const ExecutionGraph& of_job);

}  // namespace stepcast::studies
