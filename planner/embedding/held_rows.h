#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/plan.h"

namespace stepcast::planner {

/// The part of a table that one rank holds: rows first, first + stride, ... below `end`, some
/// columns, in one memory tier.
struct HeldPart {
  std::int64_t first = 0, end = 0, stride = 1;
  std::int64_t first_column = 0, end_column = 0;
  std::string tier = "hbm";
  [[nodiscard]] std::int64_t rows() const {
    return end > first ? (end - first + stride - 1) / stride : 0;
  }
  [[nodiscard]] std::int64_t columns() const { return end_column - first_column; }
};

/// Rows that member `i` of a group of `members` holds of a shard: all rows, a block of ceil(rows /
/// n) (trailing members may have none), or every n-th row from the i-th.
HeldPart held_part(const PlanShard& shard, std::int64_t members, std::int64_t i);

/// Elements that two parts have in common, in the same order of rows; tiers are not compared.
/// O(stride) at most.
std::int64_t common_elements(const HeldPart& a, const HeldPart& b);

/// The same where the orders of rows differ and nothing is known of which row is where: the fewest
/// elements that two parts of a table of `rows` rows must have in common.
std::int64_t least_common_elements(const HeldPart& a, const HeldPart& b, std::int64_t rows);

}  // namespace stepcast::planner
