#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "studies/run/core_pace.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// Predicted beside measured for one op kind, or one named op of one phase, of one rank and step.
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

struct Comparison {
  std::string workload, system;
  std::int32_t rank = 0;  ///< the predicted critical rank
  std::int64_t steps = 0;
  Seconds predicted, measured;         ///< of the whole step; measured is the median
  double error = 0;                    ///< predicted / measured - 1
  double spread = 0;                   ///< (p95 - p5) / median of the measured steps
  std::vector<ComparisonRow> by_kind;  ///< closing rows: "host and gaps", what no op of a step
                                       ///< took; "beyond the medians", what steps took longer
                                       ///< than the medians of their parts
  std::vector<ComparisonRow> by_name;
  std::vector<ComparedTraffic> traffic;
  std::uint64_t dropped_records = 0;
  /// How fast the run's cores were against those the system was calibrated on, where both were
  /// probed.
  std::optional<StepPace> pace;
};

/// Predicts the job that a trace was recorded from and sets it beside the recording, op by op: both
/// carry the same op ids. Errors: InputError when the job's graph is not the one the trace ran.
Comparison compare(const traces::Trace& trace, const Job& job);

}  // namespace stepcast::studies
