#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

namespace stepcast::simulator {

/// A standard normal that depends on nothing but its three numbers, on every platform (SplitMix64
/// finaliser, Box-Muller).
inline double normal_at(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  };
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  const std::uint64_t base = mix(mix(mix(seed + kStep) + a + kStep) + b + kStep);
  const double u = (static_cast<double>(mix(base + kStep) >> 11) + 0.5) * 0x1p-53;
  const double v = (static_cast<double>(mix(base + 2 * kStep) >> 11) + 0.5) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace stepcast::simulator
