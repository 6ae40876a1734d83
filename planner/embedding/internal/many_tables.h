#pragma once
#include "planner/embedding/internal/local_search.h"
#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/search.h"

namespace stepcast::planner::internal {

constexpr std::size_t kManyStarts = 8;  ///< of the bound of phases

/// With a rival: whether the bound of phases, which is noted, is so near it that the problem is not
/// searched.
bool leave_to_rival(const PlacementProblem& problem, PhaseBound& phases,
                    const SearchOptions& options, SearchResult& result);

/// Improves on the greedy starts of a problem with many tables, and on its bound.
///
/// The bound of phases says which options the tables take in its relaxations of least bound;
/// smooth descents place these and change what does not fit together, and a descent on the
/// objective itself ends each. With more effort more relaxations are placed, then the best plan
/// is made soft again and sharpened, another way each time. What one run does depends on the runs
/// before it, not on how many follow, so more effort is never worse.
/// Placements of others (`proposed`) are descended from and softened as well.
void search_many(const PlacementProblem& problem, const SearchOptions& options,
                 const std::vector<Placement>& proposed, PhaseBound& phases, Budget& budget,
                 Incumbents& best_found, LocalSearch& local, SearchResult& result);

}  // namespace stepcast::planner::internal
