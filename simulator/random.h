#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/split_mix.h"

namespace stepcast::simulator {

/// A standard normal that depends on nothing but its three numbers, on every platform (Box-Muller).
inline double normal_at(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t base = split_mix(split_mix(split_mix(seed) + a) + b);
  const double u = unit_interval(split_mix(base)) + 0x1p-54;
  const double v = unit_interval(split_mix(base + kSplitMixStep)) + 0x1p-54;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace stepcast::simulator
