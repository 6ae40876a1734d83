#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/kernel_kind.h"
#include "simulator/reports/breakdown.h"
#include "traces/measured_step.h"

namespace stepcast::studies {

/// One rank of a recorded run; times are means over its steps unless named otherwise.
struct RankStep {
  std::int32_t rank = 0;
  std::int64_t steps = 0;
  Seconds median, mean;  ///< wall time of a step by this rank's own marks
  /// Parts of the mean step (simulator/reports/breakdown.h); they sum to `mean`.
  Seconds compute, exposed_communication, bubble, host, other;
  Seconds communication;  ///< transfers in flight, exposed or not: a sum over streams
  Seconds wait;           ///< in collectives, for members that came later
  Seconds issuing;        ///< of the host thread, hidden or not
  Seconds queue_full;     ///< host thread blocked on a full stream
  /// How often this rank was the last to arrive at a collective, and the wait of all others
  /// together that it caused by that, per step.
  double last_arrivals = 0;
  Seconds caused_wait;
  std::uint64_t dropped = 0;
  Seconds clock_offset, clock_residual;
};

/// One named op of one phase over all ranks that ran it; times per rank and step.
struct RecordedOp {
  std::string name;
  OpKind kind = OpKind::kFill;
  Phase phase = Phase::kForward;
  KernelKind kernel = KernelKind::kOther;
  double executions = 0;  ///< per rank and step
  Seconds time;           ///< collectives: transfer only; mean over ranks
  Seconds wait;           ///< collectives
  Seconds fastest_rank, slowest_rank;
  std::int32_t slowest = 0;     ///< that rank
  double flops_per_second = 0;  ///< per rank, while it runs
  double bytes_per_second = 0;  ///< memory traffic; of collectives, bytes sent
};

/// Account of where the time of a recorded run goes.
struct RecordedStep {
  std::int64_t ranks = 0, steps = 0;
  Seconds step;  ///< what the report calls the step: captures steady state, ours the median
  std::int64_t first_counted = 0;
  std::string marked_by;    ///< traces::MeasuredRun; ours: empty
  Seconds median, p5, p95;  ///< of the step over all ranks: first begin to last end
  double imbalance = 0;     ///< slowest rank's compute over the mean, minus 1
  /// The largest part of the critical rank's step, e.g. "compute": where time goes, which need not
  /// be what bounds it (MeasuredShow::bound).
  std::string mostly;
  double mostly_share = 0;
  std::int32_t critical_rank = 0;  ///< the rank that computes and transfers longest
  std::vector<RankStep> by_rank;
  std::vector<RecordedOp> ops;  ///< longest (time and wait) first
  std::uint64_t dropped = 0;
  std::vector<std::string> warnings;
};

/// Account of the steps of step_views.h; ops, and who came last to a collective, count for the step
/// that launched them. What was idle though nothing kept it is `host` where the host worked or the
/// next op was not launched yet, `other` where it was (launch latency, waits between streams),
/// `bubble` where a collective waited for other ranks.
///
/// Steps before `skip` are left out: by their number, of a capture counted from 0.
/// Errors: InputError when no step remains.
RecordedStep recorded_step(const traces::MeasuredRun& run, std::int32_t skip = 0);

}  // namespace stepcast::studies
