#pragma once
#include <cmath>
#include <cstdint>

#include "core/access/access.h"

namespace stepcast {

/// Rows with more than `threshold` expected lookups among `lookups`; 0 for an infinite threshold.
/// Popularity falls with the rank, so these are the ranks [0, rows_above). O(log rows).
inline std::int64_t rows_above(const Access& access, double lookups, double threshold) {
  if (std::isinf(threshold)) {
    return 0;
  }
  std::int64_t low = 0;
  std::int64_t high = access.rows();
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (access.probability(static_cast<double>(middle)) * lookups > threshold) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace stepcast
