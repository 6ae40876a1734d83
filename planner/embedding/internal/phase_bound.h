#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// A lower bound that sees that every phase waits for its own slowest rank.
///
/// Once the options of some tables are fixed, phase p lasts at least
///
///   e_p + q_p    what lies on every rank, plus the largest piece of a fixed table,
///   e_p + m_p    what lies on every rank, and the mean over ranks of all else,
///
/// so with any weights 0 <= w_p <= 1 no placement that goes on from there is below
///
///   fixed + sum over p of (1 - w_p) q_p + w_p m_p(fixed)
///         + sum over free tables of  min over options of  sum over p of  e_p + w_p m_p .
///
/// The weights are raised by subgradient steps (the Lagrangian dual of the relaxation); tables
/// whose pieces do not fit under what the relaxation says are fixed one by one, the least bound
/// first. Every set of fixed charges is looked at, once its charges and the bound without any are
/// not above another's; where groups lie and how pieces fit together are not. Source:
/// Geoffrion, "Lagrangean relaxation for integer programming", Math. Prog. Study 2, 1974; Land and
/// Doig, "An automatic method of solving discrete programming problems", Econometrica 28, 1960.
/// Checked against brute force by tests/planner/solver_test.cpp.
class PhaseBound {
 public:
  /// `starts`: relaxations kept as starts of a search.
  PhaseBound(const PlacementProblem& problem, std::size_t starts);
  ~PhaseBound();
  PhaseBound(const PhaseBound&) = delete;
  PhaseBound& operator=(const PhaseBound&) = delete;
  /// Goes on from where it ended: spends up to `nodes` more, ends where the bound is at least
  /// `enough`. No placement is below the value; it is at most `in_hand`, the objective of some
  /// placement, or the least of those given so far.
  Femtoseconds raise(Femtoseconds in_hand, Femtoseconds enough, std::uint64_t nodes);
  /// Options of all tables in the relaxations of least bound, best first: starts for a search.
  [[nodiscard]] std::vector<std::vector<std::int32_t>> starts() const;

 private:
  class Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace stepcast::planner::internal
