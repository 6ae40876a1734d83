#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/observer.h"
#include "core/graph/program.h"

namespace stepcast::traces {

/// Step boundaries of one rank, in its own clock until aligned.
struct StepMark {
  std::int32_t step = 0;
  SimTime begin{};
  SimTime end{};
};

/// Record of one rank. Spans are in order of completion per stream.
struct RankTrace {
  std::int32_t rank = 0;
  std::vector<StepMark> steps;
  std::vector<OpSpan> ops;
  std::vector<HostSpan> host;
  std::uint64_t dropped =
      0;  ///< records that did not fit the buffers; a trace with drops says so everywhere
  SimTime clock_offset{};  ///< added to this rank's times by align_clocks
  Seconds clock_residual;  ///< median |distance| of this rank's symmetric-collective ends from rank
                           ///< 0's, after alignment
};

/// A recorded run: the graph that was executed and when each of its ops ran on each rank. The graph
/// carries the op ids of the prediction, so that both are compared op by op.
struct GraphRun {
  std::string job;       ///< the resolved job, JSON text; may be empty
  std::string producer;  ///< tool and version
  /// How the recorded machine ran: host thread and compute of a rank took turns on one core (always
  /// so on the cpu backend), and collectives needed that core too (not so on a paced fabric).
  bool shares_core = true, collectives_hold_core = true;
  /// Time that recording added, per op: one clock reading inside its duration, another and the
  /// store in the gap after it, and one more while it was issued.
  Seconds clock_cost, store_cost;
  /// Fixed work on the slowest rank's core around the run (runtime/calibration/core_probe.h); 0:
  /// not known.
  Seconds core_probe;
  /// Clock of ops that ran on a device: "cupti" or "events"; empty where the host executed
  /// them. And why it was not CUPTI.
  std::string op_clock, op_clock_reason;
  /// Kernels of a run on devices that computed fused attention ("cudnn 9.19.0"): times of one say
  /// nothing of another.
  std::string attention;
  /// Kernels of products with what core/graph/epilogue.h lists, and why not the library's alone.
  std::string epilogues, epilogues_reason;
  ExecutionGraph graph;
  std::vector<RankTrace> ranks;
};

/// Puts all ranks on rank 0's clock and fills `ready` of collectives. Offsets are the median
/// distance between the ends of symmetric collectives (all-reduce, all-gather, reduce-scatter,
/// barrier), which no rank can leave before the last one came; `ready` is the latest begin among
/// the members (for all-to-all-v, send and recv also an upper bound). Source: reference
/// section 9.
void align_clocks(GraphRun& trace);

/// Durations of every (call, op) of one rank over the steps after `skip`, in step order; empty
/// where an op never ran.
struct OpSamples {
  OpRef ref;
  std::vector<double> seconds;  ///< end - begin; collectives: end - ready
};
std::vector<OpSamples> samples_of(const GraphRun& trace, std::int32_t rank, std::int32_t skip);

/// Wall time of each step over all ranks (latest end - earliest begin), after `skip` steps.
std::vector<double> step_seconds(const GraphRun& trace, std::int32_t skip);

}  // namespace stepcast::traces
