#pragma once
#include <cmath>
#include <cstdint>

#include "core/split_mix.h"

namespace stepcast::runtime {

/// A stream of random numbers that is a pure function of its key, so that any rank can
/// draw any sample of the global batch.
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t key) : state_(key) {}
  std::uint64_t next() { return next_split_mix(state_); }
  /// Uniform in [0, 1).
  double unit() { return unit_interval(next()); }
  /// Uniform in [-1, 1).
  double symmetric() { return 2 * unit() - 1; }
  /// Poisson variate by counting uniform factors; long means are drawn in parts, so it never
  /// underflows.
  std::int64_t poisson(double mean) {
    constexpr double kPart = 16;
    std::int64_t count = 0;
    for (; mean > 0; mean -= kPart) {
      const double limit = std::exp(-std::fmin(mean, kPart));
      for (double product = unit(); product > limit; product *= unit()) {
        ++count;
      }
    }
    return count;
  }

 private:
  std::uint64_t state_;
};

/// Joins parts of a key.
inline std::uint64_t key_of(std::uint64_t a, std::uint64_t b) {
  return CounterRandom(a ^ (b * 0x9ddfea08eb382d69ULL + 0x632be59bd9b4e019ULL)).next();
}

}  // namespace stepcast::runtime
