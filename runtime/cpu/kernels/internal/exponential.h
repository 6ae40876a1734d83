#pragma once
#include <bit>
#include <cstdint>

#include "runtime/cpu/kernels/internal/multiversion.h"

namespace stepcast::runtime::kernels::internal {

/// e^x, branch-free so that loops over it vectorise: x = n ln 2 + r, |r| <= ln 2 / 2, e^r by its
/// Taylor series to r^7 (remainder 0.3466^8 / 8! = 5e-9), 2^n through the exponent bits. Zero below
/// -87, saturates above 88; NaN stays NaN.
STEPCAST_INLINE float exponential(float x) {
  constexpr float kRound =
      12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  float y = x > 88.0F ? 88.0F : x;
  y = y < -87.0F ? -87.0F : y;
  const float shifted = y * 1.44269504088896341F + kRound;
  const float n = shifted - kRound;
  float r =
      y - n * 0.693359375F;  // ln 2 in two parts, the first with 10 bits, so that n * it is exact
  r = r - n * -2.12194440054690583e-4F;
  float series = 1.0F / 5040.0F;
  series = series * r + 1.0F / 720.0F;
  series = series * r + 1.0F / 120.0F;
  series = series * r + 1.0F / 24.0F;
  series = series * r + 1.0F / 6.0F;
  series = series * r + 0.5F;
  series = series * r + 1.0F;
  series = series * r + 1.0F;
  const auto scaled =
      std::bit_cast<std::uint32_t>(series) + (std::bit_cast<std::uint32_t>(shifted) << 23U);
  const float result = std::bit_cast<float>(scaled);
  return x < -87.0F ? 0.0F : result;
}

STEPCAST_INLINE float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }
STEPCAST_INLINE float hyperbolic_tangent(float x) {
  return 1.0F - 2.0F / (1.0F + exponential(2.0F * x));
}

}  // namespace stepcast::runtime::kernels::internal
