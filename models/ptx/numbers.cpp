#include "models/ptx/numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace stepcast::models::ptx {

namespace {

float decoded(SmallFloat f, std::uint32_t bits) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const std::uint32_t most = (1U << f.exponent_bits) - 1;
  const std::uint32_t mantissa = bits & ((1U << f.mantissa_bits) - 1);
  const std::uint32_t exponent = bits >> f.mantissa_bits & most;
  const float sign = (bits >> (f.mantissa_bits + f.exponent_bits) & 1U) != 0 ? -1.0F : 1.0F;
  if (exponent == most && f.infinities) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == most && !f.infinities && mantissa == (1U << f.mantissa_bits) - 1) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<float>(mantissa), 1 - bias - f.mantissa_bits);
  }
  return sign * std::ldexp(static_cast<float>(mantissa | 1U << f.mantissa_bits),
                           static_cast<int>(exponent) - bias - f.mantissa_bits);
}

/// All halves.
const std::array<float, 65536>& halves() {
  static const auto all = [] {
    std::array<float, 65536> values{};
    for (std::uint32_t bits = 0; bits < values.size(); ++bits) {
      values[bits] = decoded(kHalf, bits);
    }
    return values;
  }();
  return all;
}

}  // namespace

float from_small(SmallFloat f, std::uint32_t bits) {
  if (f.exponent_bits == kBfloat16.exponent_bits) {
    return std::bit_cast<float>(bits << 16);  // the upper half of an fp32
  }
  return f.mantissa_bits == kHalf.mantissa_bits ? halves()[bits & 0xffff] : decoded(f, bits);
}

std::uint32_t to_small(SmallFloat f, double value, bool saturate) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const std::uint32_t most = (1U << f.exponent_bits) - 1;
  const std::uint32_t ones = (1U << f.mantissa_bits) - 1;
  const std::uint32_t sign = (std::signbit(value) ? 1U : 0U) << (f.exponent_bits + f.mantissa_bits);
  const std::uint32_t nan = most << f.mantissa_bits | ones;
  const std::uint32_t largest = f.infinities ? ((most - 1) << f.mantissa_bits | ones) : nan - 1;
  if (std::isnan(value)) {
    return f.infinities && f.exponent_bits + f.mantissa_bits == 15 ? 0x7fffU : nan;
  }
  const double size = std::fabs(value);
  if (size == 0) {
    return sign;
  }
  int exponent = 0;
  std::frexp(size, &exponent);  // size = [0.5, 1) * 2^exponent
  const int unit = std::max(exponent - 1, 1 - bias) - f.mantissa_bits;
  const double rounded = std::nearbyint(std::ldexp(size, -unit));
  // Counts units of the last place: carries into the exponent by itself.
  const double bits =
      exponent - 1 < 1 - bias || std::isinf(size)
          ? rounded
          : rounded + std::ldexp(static_cast<double>(exponent - 2 + bias), f.mantissa_bits);
  if (std::isinf(size) || bits > static_cast<double>(largest)) {
    return sign | (saturate ? largest : f.infinities ? most << f.mantissa_bits : nan);
  }
  return sign | static_cast<std::uint32_t>(bits);
}

}  // namespace stepcast::models::ptx
