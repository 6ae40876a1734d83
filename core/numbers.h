#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace stepcast {

/// A count as a real number: exact up to 2^53.
constexpr double real(std::int64_t count) { return static_cast<double>(count); }

/// A non-negative integer as the index of a container.
template <std::integral Integer>
constexpr std::size_t index(Integer i) {
  return static_cast<std::size_t>(i);
}

/// The nearest integer; halves away from zero.
inline std::int64_t rounded(double v) { return std::llround(v); }

/// The smallest integer that is no less: bytes that hold a fractional amount.
inline std::int64_t rounded_up(double v) { return static_cast<std::int64_t>(std::ceil(v)); }

}  // namespace stepcast
