#pragma once
#include <string>

#include "planner/embedding/placement.h"

namespace stepcast::planner {

/// A value that no placement can beat, and why.
struct LowerBound {
  Femtoseconds value = 0;
  /// The same when memory is unlimited: the price of memory is the difference.
  Femtoseconds without_memory = 0;
  /// Argument that decided: "mean load", "largest piece", "memory", "slowest rank of each phase"
  /// (planner/embedding/internal/phase_bound.h), "proven optimal".
  std::string reason;
};

/// Lower bound of a placement problem. For every set S of routes whose fixed charges are paid, and
/// every target T,
///
///   g(T) = min over S of  fixed(S) + max over m >= 0 of
///          sum over tables of min over options o of [ mean(o) + m . bytes(o) ] - m . capacity
///
/// over options whose routes lie in S and whose largest piece fits under T; mean(o) is the option's
/// load averaged over ranks, all phases together (a maximum is at least a mean), m one Lagrange
/// multiplier per tier. A placement of objective T only uses such options, so the smallest T with
/// g(T) <= T is a bound. By symmetry of the ranks no other multipliers of the load constraints do
/// better without the piece rule. Source: Geoffrion, "Lagrangean relaxation for integer
/// programming", Math. Prog. Study 2, 1974; the piece rule is the usual one of makespan bounds.
/// Checked against brute force and CBC by tests/planner/solver_test.cpp.
LowerBound lower_bound(const PlacementProblem& problem);

}  // namespace stepcast::planner
