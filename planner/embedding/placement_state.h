#pragma once
#include <limits>
#include <utility>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner {

/// A placement with its loads and bytes kept up to date: adding or removing a table costs
/// O(ranks it touches + sqrt(ranks)), the objective is exact at any moment (integers).
///
///   PlacementState state(problem);
///   state.add(t, {option, groups});
///   Ticks with = state.objective();
///   state.remove(t);                 // and it is as before
class PlacementState {
 public:
  explicit PlacementState(const PlacementProblem& problem);
  /// All tables placed.
  PlacementState(const PlacementProblem& problem, const Placement& placement);
  void add(std::size_t table, Choice choice);
  void remove(std::size_t table);  ///< no-op for a table that is not placed
  [[nodiscard]] Femtoseconds objective() const;
  /// Objective after adding a table in that option, with its pieces on those groups.
  [[nodiscard]] Femtoseconds with(const PlacementOption& option,
                                  const std::vector<std::int32_t>& groups);
  /// No unit holds more than it can, and no more moves than may.
  [[nodiscard]] bool fits() const {
    return overfull_ == 0 && (!problem_.moves || moved_ <= problem_.moves->allowed);
  }
  /// Bytes beyond the capacities, of all units together.
  [[nodiscard]] std::int64_t excess() const { return excess_; }
  [[nodiscard]] const Placement& placement() const { return placement_; }
  [[nodiscard]] const PlacementProblem& problem() const { return problem_; }
  /// Load of a rank, what lies on all ranks included.
  [[nodiscard]] Femtoseconds load(std::int32_t rank, std::size_t phase) const {
    return on_all_[phase] + load_[phase][static_cast<std::size_t>(rank)];
  }
  /// Phases in use, then, if there are several, all of them together (`kPhases`).
  [[nodiscard]] const std::vector<std::size_t>& measures() const { return measures_; }
  /// The rank with most of a phase, or of all phases together.
  [[nodiscard]] std::int32_t busiest(std::size_t measure) const;
  /// Load of a rank in a phase, or in all together, without what is on all ranks.
  [[nodiscard]] Femtoseconds own_load(std::int32_t rank, std::size_t measure) const {
    return load_[measure][static_cast<std::size_t>(rank)];
  }
  /// Bytes free on a member of the group for one more piece: the tightest tier decides.
  [[nodiscard]] bool has_room(const PlacementOption& option, std::int32_t group) const;
  /// Groups that an option's pieces would go to when each takes the one with room where it adds
  /// least to the objective, then where its phases are least loaded; with many ranks the one that
  /// is least loaded in all phases (any group where none has room). Empty for options on all ranks.
  [[nodiscard]] std::vector<std::int32_t> least_loaded(const PlacementOption& option) const;
  /// Tables with a piece on that rank (options on all ranks left out).
  [[nodiscard]] const std::vector<std::int32_t>& tables_on(std::int32_t rank) const {
    return tables_on_[static_cast<std::size_t>(rank)];
  }
  /// Tables priced so far: one each time a table is put somewhere, or asked for there.
  [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }

 private:
  static constexpr std::size_t kTogether = kPhases;
  void apply(std::size_t table, const Choice& choice, std::int64_t sign);
  void add_to_rank(std::int32_t rank, const Load& load, std::int64_t times);
  void add_to_all(const Load& load, std::int64_t times);
  void add_to_measure(std::size_t measure, std::size_t rank, Femtoseconds load);
  void add_bytes(std::size_t tier, std::size_t unit, std::int64_t bytes);
  [[nodiscard]] Femtoseconds most(std::size_t measure) const;
  /// Groups where one more piece costs least, one for each piece.
  [[nodiscard]] std::vector<std::int32_t> cheapest_groups(const PlacementOption& option) const;
  [[nodiscard]] bool block_has_room(std::size_t block, const PlacementOption& option) const;
  /// Among the ranks with room but these, or all where none has room and `anyway`; -1: none.
  [[nodiscard]] std::int32_t least_loaded_rank(const PlacementOption& option,
                                               const std::vector<std::int32_t>& but,
                                               bool anyway) const;
  [[nodiscard]] const PlacementOption& option(std::size_t table, const Choice& c) const {
    return problem_.tables[table].options[static_cast<std::size_t>(c.option)];
  }

  const PlacementProblem& problem_;
  std::vector<std::size_t> phases_, measures_;
  Placement placement_;
  // By phase, then all phases together: what lies on all ranks, the rest by rank, and its maximum
  // by block of ranks.
  std::array<Femtoseconds, kPhases + 1> on_all_{};
  std::array<std::vector<Femtoseconds>, kPhases + 1> load_;
  std::array<std::vector<Femtoseconds>, kPhases + 1> block_most_;
  std::vector<Femtoseconds> block_least_;  ///< of all phases together
  /// By [tier][block]: no rank of the block has more bytes free. Falls when it is looked at.
  mutable std::vector<std::vector<std::int64_t>> block_free_;
  std::size_t block_ = 8;                        ///< ranks per block
  std::vector<std::vector<std::int64_t>> used_;  ///< [tier][unit]
  std::int64_t overfull_ = 0, excess_ = 0;
  std::int64_t moved_ = 0;  ///< bytes of the placed tables, where the problem counts moves
  std::vector<std::int32_t> route_uses_;
  Femtoseconds fixed_ = 0;
  std::vector<std::vector<std::int32_t>> tables_on_;
  std::uint64_t evaluations_ = 0;
};

}  // namespace stepcast::planner
