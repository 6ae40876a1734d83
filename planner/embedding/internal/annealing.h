#pragma once
#include <cstdint>
#include <functional>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// Simulated annealing on a placement: a table takes another option, a piece another place, two
/// pieces or two tables trade theirs, all tables of two options are dealt anew. A change that makes
/// the objective worse by d is kept with probability exp(-d / temperature), and the temperature
/// falls geometrically from move to move.
///
/// A descent ends where the slowest ranks of an exchange hold a whole number of equal pieces: to
/// have one less on each of them many tables must change, most of them to the worse: one by one
/// where heat allows, or together. Loads are kept
/// as doubles, the phases of a rank side by side, so that a move takes well under a microsecond.
/// Capacities hold at every step. Problems with Moves are not for it. Source: Kirkpatrick, Gelatt,
/// Vecchi, "Optimization by simulated annealing", Science 220, 1983.
struct Annealing {
  std::uint64_t moves = 0;
  double hot = 0.01;   ///< first temperature, as a share of the objective to begin with
  double cold = 5e-4;  ///< and the last
  std::function<bool()> stop = nullptr;  ///< asked now and then
  /// The best placement on the way, from one that fits.
  [[nodiscard]] Placement run(const PlacementProblem& problem, const Placement& from,
                              std::uint64_t seed) const;
};

}  // namespace stepcast::planner::internal
