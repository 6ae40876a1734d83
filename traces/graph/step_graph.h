#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "traces/graph/host_order.h"
#include "traces/measured_step.h"

namespace stepcast::traces {

/// Assumptions made where the record does not say; shown with the result.
struct GraphAssumptions {
  std::uint64_t inferred_edges = 0;  ///< stream waits without ids, ordered by the calls around them
  std::uint64_t refuted_edges = 0;   ///< such waits that the recorded times contradict: left out
  std::uint64_t orphans = 0;         ///< device work without a launch: in stream order
  std::uint64_t full_queues = 0;     ///< launches that waited for room: stripped
};

/// One collective of a rank's step: a node that others may meet.
struct CollectiveNode {
  std::size_t op = 0;  ///< op of the program
  OpKind kind = OpKind::kCount;
  std::string group;  ///< what identifies the communicator; "" where the trace does not say
  std::vector<std::int32_t> members;
};

/// One rank's part of a step: a program of one call whose ops are its device work in order of
/// issue, and, on the stream "calls", its synchronising calls.
struct RankGraph {
  Program program;
  MeasuredRank measured;
  std::vector<CollectiveNode> collectives;
};

/// Rebuilds what a rank did from a host time on, over one step or several back to back, each up to
/// its end in `ends` (ascending).
///
/// Device work belongs to the step whose calls launched it; what earlier calls left running is one
/// op at the head of its stream. Streams are first-in first-out. A stream waits where the host told
/// it to: by recorded event where the profiler wrote the ids, else for the latest work issued to
/// another stream (PyTorch's pattern around collectives), unless recorded times contradict it.
/// Synchronising calls, and copies that returned only when the data was there, hold the host until
/// their work ends; the time they waited is stripped (R2), and so is that of launches into a full
/// queue. Work without a launch follows its stream, after the gap that was recorded; where no call
/// was recorded at all, a step ends after its work.
RankGraph build_rank_graph(const Recording& recording, const RankRecording& rank,
                           const HostOrder& order, Nanoseconds begin,
                           const std::vector<Nanoseconds>& ends, GraphAssumptions& assumptions);

}  // namespace stepcast::traces
