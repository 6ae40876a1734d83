#pragma once
#include <cstdint>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// How much of each table a relaxation gives to each of its options: [table][option].
using Mix = std::vector<std::vector<double>>;

/// A lower bound that sees that pieces are indivisible: the linear program over rank patterns.
///
/// A pattern is what one rank may hold, at most one piece of each table, of a load that stays under
/// the target. An option whose pieces lie on n ranks in all puts 1/n of its table into each of
/// them, one on every rank included, so with any values v of the tables, V(v, C) the largest value
/// of a pattern of load C, and R ranks
///
///   R V(v, C) < sum over tables of v    =>    no placement loads its busiest rank with C or less.
///
/// The best v is the dual of  min sum z  over patterns that cover every table (Gilmore and Gomory,
/// "A linear programming approach to the cutting-stock problem", Operations Research 9, 1961),
/// found by column generation: patterns are priced by a multiple-choice knapsack on a grid of
/// loads. The answer uses loads rounded down on a fine grid, so it is a bound whatever the column
/// generation reached. Every set of fixed charges is looked at; memory and where groups lie are
/// not. Checked against brute force by tests/planner/solver_test.cpp.
///
///   PatternBound patterns(problem);
///   patterns.mix(known, in_hand, 400);             // where good placements are; find one, then
///   Ticks bound = patterns.value(known, best, 400);
class PatternBound {
 public:
  explicit PatternBound(const PlacementProblem& problem);
  /// The mix under the charges that decide the bound; empty where they cannot beat what is in hand.
  Mix mix(Femtoseconds known, Femtoseconds in_hand, std::uint64_t knapsacks);
  /// A bound of at least `known` and at most `in_hand`, the objective of some placement.
  /// `knapsacks`: to spend on each set of charges that may beat it.
  Femtoseconds value(Femtoseconds known, Femtoseconds in_hand, std::uint64_t knapsacks);

 private:
  struct Charges {
    std::uint32_t routes;
    double fixed;
    double least;  ///< no objective with these charges is below
    bool solved;
    Mix mix;
  };
  void solve(Charges& charges, Femtoseconds known, Femtoseconds in_hand, std::uint64_t knapsacks);
  /// The set of charges of least bound, best first: solved, or beyond what is in hand.
  const Charges* decisive(Femtoseconds known, Femtoseconds in_hand, std::uint64_t knapsacks);

  const PlacementProblem& problem_;
  std::vector<Charges> charges_;
};

}  // namespace stepcast::planner::internal
