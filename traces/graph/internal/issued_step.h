#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "traces/graph/step_graph.h"

namespace stepcast::traces {

/// Lane of synchronising calls: they have no stream.
constexpr std::uint16_t kCallsLane = UINT16_MAX;

/// Device work, or a call that holds the host, in order of issue.
struct IssuedNode {
  EventId event = kNoEvent;  ///< of the work or the call; kNoEvent: host time alone
  std::uint16_t lane = kCallsLane;
  bool host_waits = false;
  std::uint32_t first_wait = 0;  ///< in IssuedStep::waits, up to that of the next node
  Nanoseconds issued{};
};

/// Work that a rank issued in a step.
struct IssuedStep {
  std::vector<IssuedNode> nodes;
  // By node, in nanoseconds.
  std::vector<std::int64_t> issue;    ///< host, since the previous node
  std::vector<std::int64_t> latency;  ///< from its issue until it could begin
  std::vector<std::int64_t> delay;  ///< until it began, though nothing recorded kept it any longer
  std::vector<std::int64_t> duration;
  std::vector<std::uint32_t> waits;  ///< nodes that nodes wait for
  [[nodiscard]] std::span<const std::uint32_t> waits_of(std::size_t node) const {
    const std::size_t first = nodes[node].first_wait;
    const std::size_t last = node + 1 < nodes.size() ? nodes[node + 1].first_wait : waits.size();
    return std::span(waits).subspan(first, last - first);
  }
  std::set<std::size_t> carried;   ///< nodes that stand for work of earlier steps
  std::int64_t stripped = 0;       ///< host time spent waiting
  std::vector<std::size_t> marks;  ///< by step: the node at which the host ends it
  Nanoseconds begin{};
  std::vector<Nanoseconds> ends;  ///< by step: where the host ends it
};

/// Writes the step as a program of one call, with its measured times.
/// Errors: InputError when it uses more streams than a program may have.
RankGraph rank_graph_of(const Recording& recording, const RankRecording& rank,
                        const HostOrder& order, IssuedStep step);

}  // namespace stepcast::traces
