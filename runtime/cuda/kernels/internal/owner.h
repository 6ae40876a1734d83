#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// Which part owns a row, and its number there.
struct Owner {
  std::int64_t part;
  std::int64_t row;
};

/// With boundaries (parts + 1, ascending) the last part that begins at or before the row; without,
/// rows are dealt out in turn.
STEPCAST_HOST_DEVICE inline Owner owner_of(std::int64_t row, std::int64_t parts,
                                           const std::int64_t* boundaries) {
  if (boundaries == nullptr) {
    return {row % parts, row / parts};
  }
  std::int64_t low = 0;
  std::int64_t high = parts;  // boundaries[low] <= row < boundaries[high]
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (boundaries[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {low, row - boundaries[low]};
}

}  // namespace stepcast::runtime::cuda::kernels::internal
