#include "planner/embedding/held_rows.h"

#include <algorithm>
#include <numeric>

#include "core/graph/embedding_placement.h"

namespace stepcast::planner {
namespace {

std::int64_t common_columns(const HeldPart& a, const HeldPart& b) {
  return std::max<std::int64_t>(
      0, std::min(a.end_column, b.end_column) - std::max(a.first_column, b.first_column));
}

/// Rows in both progressions. Those of `a` repeat in `b` every b.stride / gcd steps.
std::int64_t common_rows(const HeldPart& a, const HeldPart& b) {
  const std::int64_t low = std::max(a.first, b.first);
  const std::int64_t high = std::min(a.end, b.end);
  const std::int64_t common = std::gcd(a.stride, b.stride);
  if (low >= high || (b.first - a.first) % common != 0) {
    return 0;
  }
  const std::int64_t period = a.stride / common * b.stride;
  std::int64_t row = low + (a.first + (low / a.stride + 1) * a.stride - low) % a.stride;
  for (std::int64_t k = 0; k < b.stride / common; ++k, row += a.stride) {
    if ((row - b.first) % b.stride == 0) {
      return row < high ? (high - row + period - 1) / period : 0;
    }
  }
  return 0;
}

}  // namespace

HeldPart held_part(const PlanShard& shard, std::int64_t members, std::int64_t i) {
  HeldPart p;
  p.first_column = shard.columns[0];
  p.end_column = shard.columns[1];
  p.tier = shard.tier;
  const HeldRows held = row_split(shard, members).part(i);
  p.first = held.first;
  p.stride = held.stride;
  p.end = held.stride == 1 ? held.first + held.rows : shard.rows[1];
  return p;
}

std::int64_t common_elements(const HeldPart& a, const HeldPart& b) {
  const std::int64_t columns = common_columns(a, b);
  if (columns == 0) {
    return 0;
  }
  // The coarser progression outside, so that the walk is the shorter one.
  return columns * (a.stride >= b.stride ? common_rows(a, b) : common_rows(b, a));
}

std::int64_t least_common_elements(const HeldPart& a, const HeldPart& b, std::int64_t rows) {
  return common_columns(a, b) * std::max<std::int64_t>(0, a.rows() + b.rows() - rows);
}

}  // namespace stepcast::planner
