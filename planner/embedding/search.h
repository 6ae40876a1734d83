#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/embedding/bound.h"
#include "planner/embedding/placement.h"

namespace stepcast::planner {

enum class SearchEffort : std::uint8_t { kQuick, kNormal, kThorough };
/// Runs of annealing, or of smooth descents with many tables.
std::size_t runs_of(SearchEffort effort);

struct SearchOptions {
  std::uint64_t seed = 1;
  /// Seconds of wall clock; without a limit the effort is fixed by the size of the problem and the
  /// result depends on the seed alone.
  std::optional<double> time_limit = std::nullopt;
  /// A placement this close to the bound, as a fraction, is not improved any more.
  double good_enough = 4e-3;
  SearchEffort effort = SearchEffort::kNormal;
  /// Placements that others propose; those that do not fit are left out.
  std::vector<Placement> starts = {};
  /// lower_bound() of the problem, of free arrival where that overlaps, if it is known.
  std::optional<LowerBound> bound = std::nullopt;
  std::size_t keep = 4;                     ///< distinct placements handed back
  std::function<double()> clock = nullptr;  ///< seconds; only asked with a time limit
  /// Asked now and then: true ends the search with what it has.
  std::function<bool()> interrupted = nullptr;
};

/// Reason why a placement cannot be found: the shortest explanation.
struct Shortage {
  std::string table;  ///< empty: all tables together
  std::string tier;
  std::int64_t needed = 0;
  std::int64_t capacity = 0;
  [[nodiscard]] std::int64_t missing() const { return needed - capacity; }
};

struct SearchResult {
  std::vector<std::pair<Femtoseconds, Placement>> best;  ///< ascending; empty when infeasible
  /// Where ids arrive ahead: the best of a search that pays for their arrival in full. While ids
  /// and rows share the links, a plan that has few ids to send may take the shorter step.
  std::optional<std::pair<Femtoseconds, Placement>> paid;
  LowerBound bound;
  std::uint64_t evaluations = 0;
  bool cut = false;  ///< by the time limit, or interrupted
  std::optional<Shortage> shortage;
  [[nodiscard]] double gap() const;  ///< best / bound - 1
};

/// Minimises a placement problem: several greedy starts (cheapest options whose pieces stay under a
/// threshold, longest piece first onto the least loaded group), local search with exact deltas on
/// the ranks that are busiest in each phase, and simulated annealing; with many tables smooth
/// descents (planner/embedding/internal/many_tables.h). Never returns a placement that exceeds a
/// capacity.
SearchResult search(const PlacementProblem& problem, const SearchOptions& options = {});

/// Why nothing fits, if a relaxation can tell: a table whose smallest option is larger than a unit,
/// or all tables together larger than all units.
std::optional<Shortage> shortage_of(const PlacementProblem& problem);

/// Puts tables, largest piece first, where they fit and load least; false when one did not fit.
/// `choose` names the option of each table.
bool place_greedily(class PlacementState& state, const std::vector<std::int32_t>& choose);

}  // namespace stepcast::planner
