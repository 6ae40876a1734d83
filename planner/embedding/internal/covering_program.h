#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "planner/embedding/internal/rank_patterns.h"

namespace stepcast::planner::internal {

/// Revised simplex on  min sum z, patterns cover every table at least once, z >= 0:  the fewest
/// ranks that can hold all tables, fractions allowed. Columns are entered one by one as they are
/// found; the basis begins with each table alone, in its largest part.
///
///   CoveringProgram program(items);
///   while (program.enter(pattern_worth_most(program.duals()))) {}
///   double ranks = program.value();
class CoveringProgram {
 public:
  explicit CoveringProgram(const PatternItems& items);
  [[nodiscard]] std::vector<double> duals() const;
  [[nodiscard]] double value() const;
  /// Worth of a pattern's parts under values of the tables; above 1 it may enter.
  [[nodiscard]] double worth(const Pattern& p, std::span<const double> values) const;
  /// False where the program cannot take it.
  bool enter(const Pattern& p);
  /// More of a table than needed: the slack of its row.
  bool enter_slack(std::size_t t);
  /// Part of table t that lies in its item i.
  [[nodiscard]] double covered(std::size_t t, std::int32_t i) const;

 private:
  [[nodiscard]] double part(std::size_t t, const Pattern& p) const;
  bool pivot(const std::vector<double>& column, double cost, const Pattern& pattern);

  const PatternItems& items_;
  std::size_t n_;  ///< tables, and columns of the basis
  std::vector<double> inverse_, cost_, level_;
  std::vector<Pattern> basis_;
};

}  // namespace stepcast::planner::internal
