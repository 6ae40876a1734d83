#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner {

/// A small mixed-integer program, minimised.
struct Milp {
  struct Variable {
    double objective = 0;
    double low = 0;
    double high = 1;
    bool integer = true;
  };
  struct Row {
    std::vector<std::pair<std::size_t, double>> terms;
    char sense = '<';  ///< '<' at most, '>' at least, '=' equal
    double right = 0;
  };
  std::vector<Variable> variables;
  std::vector<Row> rows;
  std::size_t variable(Variable v) {
    variables.push_back(v);
    return variables.size() - 1;
  }
};

struct MilpSolution {
  bool optimal = false;  ///< proven; else the best found in the time
  double objective = 0;
  std::vector<double> values;
};

/// Solves with the `cbc` executable (COIN-OR branch and cut) of the search path, in a folder for
/// temporary files. nullopt where cbc is not installed or finds nothing.
std::optional<MilpSolution> solve_with_cbc(const Milp& milp, double seconds);
bool has_cbc();

/// A placement problem as a mixed-integer program: one binary per (table, option, group), loads in
/// milliseconds, one maximum over ranks. The oracle of tests/planner.
struct PlacementMilp {
  Milp milp;
  /// Placement of a solution.
  [[nodiscard]] Placement placement(const PlacementProblem& problem,
                                    const MilpSolution& solution) const;

  struct Entry {
    std::size_t table;
    std::int32_t option;
    std::int32_t group;  ///< -1: all ranks
    std::size_t variable;
  };
  std::vector<Entry> entries;
};
PlacementMilp milp_of(const PlacementProblem& problem);

}  // namespace stepcast::planner
