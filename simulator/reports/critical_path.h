#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"
#include "simulator/reports/timeline.h"
#include "simulator/step_costs.h"

namespace stepcast::simulator {

/// The chain of work that decides the step's length: making anything on it faster makes the step
/// faster, until another chain takes over.
struct CriticalPath {
  enum class Part : std::uint8_t { kHost, kCompute, kTransfer, kGap };
  /// A piece of the path; pieces follow each other without a hole from 0 to the makespan. `ref` is
  /// the op that runs, is issued, or is dispatched (kGap).
  struct Piece {
    Part part = Part::kCompute;
    std::int32_t rank = 0;
    OpRef ref;
    SimTime begin{}, end{};
  };
  std::vector<Piece> pieces;
  SimTime length{};
  SimTime host{}, compute{}, transfer{}, gap{};  ///< sums of the pieces
  /// By op of `timeline`: how much later it could have ended without delaying the step.
  std::vector<SimTime> slack;
};

/// Longest path through the executed dependency graph: issue order, stream order, events, queue
/// limits, rendezvous and, on a shared core, the order in which the core was used. `timeline` must
/// hold all simulated ranks. The path's length equals the makespan.
CriticalPath critical_path(const ExecutionGraph& graph, const StepCosts& costs,
                           const Timeline& timeline);

}  // namespace stepcast::simulator
