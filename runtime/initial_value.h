#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace stepcast::runtime {

/// The initial value of a parameter in one column: uniform in [-scale, scale), by a hash of 32-bit
/// arithmetic that devices and vector units compute alike. `row` is the hash of the parameter and
/// its row (row_hash, runtime/tensor_layout.h).
STEPCAST_HOST_DEVICE __attribute__((always_inline)) inline float initial_value(std::uint64_t row,
                                                                               std::uint32_t column,
                                                                               float scale) {
  std::uint32_t h =
      static_cast<std::uint32_t>(row) + column * (static_cast<std::uint32_t>(row >> 32U) | 1U);
  h = (h ^ (h >> 16)) * 0x85ebca6bU;
  h = (h ^ (h >> 13)) * 0xc2b2ae35U;
  h ^= h >> 16;
  // The upper 24 bits are exact in fp32: 2 h / 2^24 - 1 in [-1, 1).
  const float unit = static_cast<float>(static_cast<std::int32_t>(h >> 8)) * 0x1p-23F - 1.0F;
  return unit * scale;
}

}  // namespace stepcast::runtime
