#pragma once
#include <cstdint>

#include "core/host_device.h"

/// The integers behind ExpertDraw, for hosts and devices alike. Token i's point is the radical
/// inverse of i in base 2 plus a phase, modulo 1; its experts are those whose shares, laid end to
/// end from bounds[0] = 0 on, hold the point, the point + 1, ... All in units of 2^-48.
namespace stepcast::expert_points {

inline constexpr int kBits = 48;
inline constexpr std::uint64_t kUnit = std::uint64_t{1} << kBits;

/// The point of a token in [0, kUnit). The fraction 0.b0 b1 b2 ... of i = ... b2 b1 b0, shifted.
STEPCAST_HOST_DEVICE inline std::uint64_t point_of(std::uint64_t token, std::uint64_t phase) {
  std::uint64_t reversed = 0;
  for (int b = 0; token >> b != 0; ++b) {
    reversed |= (token >> b & 1) << (kBits - 1 - b);
  }
  return (reversed + phase) % kUnit;
}

/// The expert whose share holds `at`.
STEPCAST_HOST_DEVICE inline std::int32_t expert_at(const std::uint64_t* bounds,
                                                   std::int32_t experts, std::uint64_t at) {
  std::int32_t first = 0;  // bounds[first] <= at < bounds[end]
  std::int32_t end = experts;
  while (end - first > 1) {
    const std::int32_t middle = first + (end - first) / 2;
    (bounds[middle] <= at ? first : end) = middle;
  }
  return first;
}

/// Points offset, offset + 2^gap, ... below `end`; offset < 2^gap.
STEPCAST_HOST_DEVICE inline std::int64_t points_below(std::uint64_t end, std::uint64_t offset,
                                                      int gap) {
  return end <= offset ? 0 : static_cast<std::int64_t>((end - offset - 1) >> gap) + 1;
}

/// 2^(48 - gap) neighbouring tokens, the first of which is a multiple of their number: their points
/// are offset, offset + 2^gap, ...
struct TokenBlock {
  std::uint64_t offset = 0;
  int gap = kBits;
  [[nodiscard]] STEPCAST_HOST_DEVICE std::uint64_t tokens() const { return kUnit >> gap; }
  /// How many of them go to the expert with the share [begin, end).
  [[nodiscard]] STEPCAST_HOST_DEVICE std::int64_t taken(std::uint64_t begin,
                                                        std::uint64_t end) const {
    return points_below(end, offset, gap) - points_below(begin, offset, gap);
  }
};

/// The largest block that begins with token `first` and ends before `last`; first < last.
STEPCAST_HOST_DEVICE inline TokenBlock block_from(std::uint64_t first, std::uint64_t last,
                                                  std::uint64_t phase) {
  int m = 0;
  while ((first >> m & 1) == 0 && (std::uint64_t{2} << m) <= last - first) {
    ++m;
  }
  const int gap = kBits - m;
  return {point_of(first, phase) & ((std::uint64_t{1} << gap) - 1), gap};
}

/// How many of the tokens [first, last) go to the expert with the share [begin, end).
STEPCAST_HOST_DEVICE inline std::int64_t taken(std::uint64_t first, std::uint64_t last,
                                               std::uint64_t phase, std::uint64_t begin,
                                               std::uint64_t end) {
  std::int64_t sum = 0;
  while (first < last) {
    const TokenBlock block = block_from(first, last, phase);
    sum += block.taken(begin, end);
    first += block.tokens();
  }
  return sum;
}

}  // namespace stepcast::expert_points
