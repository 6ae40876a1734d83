#pragma once
#include "planner/embedding/placement.h"
#include "planner/embedding/search.h"

namespace stepcast::planner {

/// The load of each phase's slowest rank.
Load slowest_of(const PlacementProblem& problem, const Placement& placement);
/// The load of each phase's average rank.
Load mean_of(const PlacementProblem& problem, const Placement& placement);

/// Time by which ids that arrive ahead, over the links of the step, delay it: what of the arrival
/// is left for times that are not free of exchanges over these links. From the step's begin on, for
/// each kind of route in turn, its lookups and its exchanges apart from the links (inside a group
/// of ranks) leave them to the ids; its other forward exchanges take longer by what arrives
/// meanwhile, for as long as rows enter a rank: outputs enter all ranks alike, so for the load of
/// the average rank; the ranks that send more of them do so in the other direction. The time in
/// which nothing else uses a link (`arrival_overlaps`) is free, backward exchanges, which enter
/// the ranks that ids enter, share again, the rest of them and updates are free, and what is left
/// then is waited for.
Femtoseconds arrival_delay(const PlacementProblem& problem, const Placement& placement);

/// A plain problem whose objective is, up to a constant, a weighted mean of the two numbers that
/// one with overlapped arrival never goes below: `chain` times the chain plus (1 - chain) times the
/// busy links. For every weight in 0..1 the mean of two numbers is at most the larger one, so with
/// `relaxed_constant` a lower bound of it is one of the problem (Lagrangian duality of a minimax).
PlacementProblem relaxed(const PlacementProblem& problem, double chain);
Femtoseconds relaxed_constant(const PlacementProblem& problem, double chain);

/// search() of a problem with overlapped arrival: plain searches with free arrival, with arrival
/// paid in full, as without the pipeline, and at weights between those at which ids delay what is
/// found and those at which they do not. Placements are ranked by the problem's own
/// objective; the bound is the higher one of the chain alone and of the mean of chain and links.
SearchResult search_overlapped(const PlacementProblem& problem, const SearchOptions& options);

}  // namespace stepcast::planner
