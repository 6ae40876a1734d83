#pragma once
#include "planner/embedding/internal/local_search.h"
#include "planner/embedding/search.h"

namespace stepcast::planner::internal {

/// Improves on the greedy starts of a problem with many tables, and on its bound.
///
/// The bound of phases says which options the tables take in its relaxations of least bound; smooth
/// descents place these and change what does not fit together. With more effort more relaxations
/// are placed, then the best plan is made soft again and sharpened, another way each time. What one
/// run does depends on the runs before it, not on how many follow, so more effort is never worse.
void search_many(const PlacementProblem& problem, const SearchOptions& options, Budget& budget,
                 Incumbents& best_found, LocalSearch& local, SearchResult& result);

}  // namespace stepcast::planner::internal
