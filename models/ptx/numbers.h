#pragma once
#include <cstdint>

namespace stepcast::models::ptx {

/// A binary float format of at most 16 bits: exponent and mantissa bits, and whether its largest
/// exponent holds infinities (e4m3: only a NaN, with all bits set).
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool infinities;
};
constexpr SmallFloat kHalf{5, 10, true};
constexpr SmallFloat kBfloat16{8, 7, true};
constexpr SmallFloat kE4m3{4, 3, false};  // OCP OFP8
constexpr SmallFloat kE5m2{5, 2, true};

float from_small(SmallFloat format, std::uint32_t bits);
/// Rounds to nearest even; `saturate`: beyond the largest number that number, else an infinity (NaN
/// where there are none).
std::uint32_t to_small(SmallFloat format, double value, bool saturate = false);

}  // namespace stepcast::models::ptx
