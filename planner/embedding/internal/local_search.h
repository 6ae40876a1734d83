#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "planner/embedding/placement_state.h"
#include "planner/embedding/search.h"

namespace stepcast::planner::internal {

/// Evaluations spent, and the clock where there is a limit.
class Budget {
 public:
  /// `evaluations`: to spend where no clock decides.
  Budget(const SearchOptions& options, std::uint64_t evaluations);
  /// Allows that many evaluations from now on, if no clock decides.
  void allow(std::uint64_t more) { allowed_ = evaluations_ + more; }
  /// Allows that many evaluations beyond those allowed already.
  void extend(std::uint64_t more) { allowed_ += more; }
  void add(std::uint64_t evaluations) { evaluations_ += evaluations; }
  /// The time is over, or the search was interrupted. Looks, but not each time it is asked.
  [[nodiscard]] bool ended();
  /// Ended, or the evaluations, with `more` in progress, are used up.
  [[nodiscard]] bool spent(std::uint64_t more = 0) {
    return ended() || (!timed() && evaluations_ + more >= allowed_);
  }
  [[nodiscard]] bool timed() const { return limit_.has_value(); }
  [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }
  [[nodiscard]] bool cut() const { return cut_; }

 private:
  std::optional<double> limit_;
  std::function<double()> clock_;
  std::function<bool()> interrupted_;
  double begin_ = 0;
  std::uint64_t allowed_ = 0;
  std::uint64_t evaluations_ = 0;
  std::uint32_t asked_ = 0;
  bool cut_ = false;
};

/// The best distinct placements seen.
class Incumbents {
 public:
  explicit Incumbents(std::size_t keep) : keep_(keep) {}
  void offer(const PlacementState& state);
  void offer(Femtoseconds objective, const Placement& placement);
  [[nodiscard]] Femtoseconds best() const {
    return best_.empty() ? std::numeric_limits<Femtoseconds>::max() : best_.front().objective;
  }
  [[nodiscard]] const Placement& front() const { return best_.front().placement; }
  std::vector<std::pair<Femtoseconds, Placement>> take();

 private:
  struct Entry {
    Femtoseconds objective;
    Placement placement;
  };
  std::size_t keep_;
  std::vector<Entry> best_;
};

/// Descent from a placement.
class LocalSearch {
 public:
  LocalSearch(const PlacementProblem& problem, std::uint64_t seed, Femtoseconds enough,
              Budget& budget, Incumbents& best_found);
  /// Moves until nothing improves: on the busiest rank of each phase,
  /// and on a few tables that lie on all ranks.
  void descend(PlacementState& state);
  /// For problems where memory is tight: from a placement that does not fit, lowers what is too
  /// much.
  void repair(const std::vector<std::int32_t>& choose);
  void settle_for(Femtoseconds enough) { enough_ = enough; }
  std::uint64_t random();
  [[nodiscard]] std::optional<Shortage> closest_shortage() const { return closest_; }

 private:
  /// The best other choice of one table; applied when better than `at`.
  bool improve_table(PlacementState& state, std::size_t table, Femtoseconds& at);

  const PlacementProblem& problem_;
  std::uint64_t random_state_;
  Femtoseconds enough_;
  Budget& budget_;
  Incumbents& best_found_;
  std::size_t cursor_ = 0;
  std::optional<Shortage> closest_;
};

}  // namespace stepcast::planner::internal
