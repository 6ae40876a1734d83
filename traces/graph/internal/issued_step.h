#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include "traces/graph/step_graph.h"

namespace stepcast::traces {

constexpr std::size_t kCallsLane = SIZE_MAX;  ///< of synchronising calls: they have no stream

/// Device work, or a call that holds the host, in order of issue. Times in nanoseconds.
struct IssuedNode {
  EventId event = kNoEvent;  ///< of the work or the call; kNoEvent: host time alone
  std::size_t lane = kCallsLane;
  std::int64_t issue = 0;    ///< host, since the previous node
  std::int64_t latency = 0;  ///< from its issue until it could begin
  std::int64_t delay = 0;    ///< until it began, though nothing recorded kept it any longer
  std::int64_t duration = 0;
  Nanoseconds issued{};
  bool host_waits = false;
  std::vector<std::size_t> waits;  ///< nodes it waits for
};

/// Work that a rank issued in a step.
struct IssuedStep {
  std::vector<IssuedNode> nodes;
  std::set<std::size_t> carried;   ///< nodes that stand for work of earlier steps
  std::int64_t stripped = 0;       ///< host time spent waiting
  std::vector<std::size_t> marks;  ///< by step: the node at which the host ends it
  Nanoseconds begin{};
  std::vector<Nanoseconds> ends;  ///< by step: where the host ends it
};

/// Writes the step as a program of one call, with its measured times.
/// Errors: InputError when it uses more streams than a program may have.
RankGraph rank_graph_of(const Recording& recording, const RankRecording& rank,
                        const HostOrder& order, const IssuedStep& step);

}  // namespace stepcast::traces
