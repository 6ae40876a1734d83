#pragma once
#include <cstdint>
#include <optional>
#include <utility>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// The optimum of a small problem, by depth-first search over tables in falling order of load.
///
/// A partial placement is dropped when the larger of its objective and of the mean load (what is
/// placed, plus the least of each table that is not, over the ranks) reaches the best in hand;
/// groups whose ranks hold the same loads and bytes are tried once. `steps`: placements of a table
/// to try at most. nullopt when they did not suffice; else the optimum, or no placement when the
/// best in hand cannot be beaten.
struct ProvenOptimum {
  std::optional<std::pair<Femtoseconds, Placement>> better;  ///< than the best in hand
  std::uint64_t steps = 0;
};
std::optional<ProvenOptimum> branch_and_bound(const PlacementProblem& problem, Femtoseconds in_hand,
                                              std::uint64_t steps);

}  // namespace stepcast::planner::internal
