#pragma once
#include <cstdint>

namespace stepcast {

inline constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15ULL;  ///< 2^64 / golden ratio, odd

/// A bijection of 64 bits in which every bit of x moves every bit of the answer (SplitMix64:
/// Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). Everything
/// here that hashes a number or draws one uses it, so draws are the same on every platform.
constexpr std::uint64_t split_mix(std::uint64_t x) {
  x += kSplitMixStep;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// The next number of the stream that `state` stands in.
constexpr std::uint64_t next_split_mix(std::uint64_t& state) {
  const std::uint64_t drawn = split_mix(state);
  state += kSplitMixStep;
  return drawn;
}

/// The high 53 bits as a number in [0, 1).
constexpr double unit_interval(std::uint64_t bits) {
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

}  // namespace stepcast
