#pragma once
#include "planner/embedding/placement.h"
#include "planner/embedding/search.h"

namespace stepcast::planner {

/// A plain problem whose objective is, up to a constant, a weighted mean of both terms of one with
/// overlapped arrival: `chain` times the chain plus (1 - chain) times the busy links. For every
/// weight in 0..1 the mean of two numbers is at most the larger one, so with `relaxed_constant` a
/// lower bound of it is one of the problem (Lagrangian duality of a minimax).
PlacementProblem relaxed(const PlacementProblem& problem, double chain);
Ticks relaxed_constant(const PlacementProblem& problem, double chain);

/// search() of a problem with overlapped arrival: plain searches at weights that halve the interval
/// in which chain and links of the placements found are equally long, and one that pays for arrival
/// in full, as without the pipeline. Placements are ranked by the problem's own objective; the
/// bound is the highest over the weights.
SearchResult search_overlapped(const PlacementProblem& problem, const SearchOptions& options);

}  // namespace stepcast::planner
