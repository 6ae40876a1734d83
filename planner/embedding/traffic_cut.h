#pragma once
#include "core/access/access.h"
#include "core/units.h"

namespace stepcast::planner {

/// Nodes of devices between which looked-up rows travel one by one (no pooling, no deduplication),
/// and their gradients back. Copies of a row sum their gradients every `sync_every` steps.
struct TrafficQuestion {
  double nodes = 8;
  double per_node = 8;
  double sync_every = 1;
  Bytes row = Bytes(256);
};

/// Effect of copies of hot rows on the traffic between nodes, when each row goes to the level that
/// moves fewest bytes. With c the expected accesses of a row per global batch, N nodes of L devices
/// and sync every k steps:
///
///   copy in each node   c > N / k     between nodes: 2 (N-1) v / k to sync instead of 2 (N-1)/N v
///   c copy on each device c > N L / k   inside a node: 2 (L-1) N v / k instead of 2 (L-1)/L v c
///
/// Shares are of the all-to-all between nodes without copies, 2 (N-1)/N v per lookup.
/// Source: the bytes of each level; levels follow FlexShard (arXiv 2301.02959).
struct TrafficCut {
  double above_node = 0, above_everywhere = 0;  ///< thresholds of c
  double rows_node = 0, rows_everywhere = 0;    ///< rows of each level
  double saved = 0;                             ///< all-to-all that lookups of copied rows spare
  double sync = 0;                              ///< what synchronising the copies costs
  [[nodiscard]] double net() const { return saved - sync; }
  Bytes all_to_all;  ///< between nodes, per device and step, without copies
  Bytes copies;      ///< weights of copied rows, per device
};
TrafficCut traffic_cut(const Access& access, double lookups, const TrafficQuestion& question);

}  // namespace stepcast::planner
