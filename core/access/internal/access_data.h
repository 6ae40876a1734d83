#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/access/access.h"
#include "core/access/internal/popularity_curve.h"
#include "core/split_mix.h"

namespace stepcast::internal {

/// A keyed bijection of [0, size): mixes the bits of the smallest power of two that holds `size`
/// (add, multiply by an odd number, fold the high bits down: each invertible) and walks the cycle
/// until it lands inside, at most twice on average.
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed) : size_(static_cast<std::uint64_t>(size)) {
    const int bits = std::bit_width(size_ - 1);
    mask_ = bits == 0 ? 0 : std::numeric_limits<std::uint64_t>::max() >> (64 - bits);
    shift_ = bits / 2 + 1;
    std::uint64_t state = seed;
    for (Round& round : rounds_) {
      round.add = next_split_mix(state);
      round.factor = next_split_mix(state) | 1;
    }
  }
  [[nodiscard]] std::int64_t operator()(std::int64_t index) const {
    auto x = static_cast<std::uint64_t>(index);
    do {
      for (const Round& round : rounds_) {
        x = ((x + round.add) * round.factor) & mask_;
        x ^= x >> shift_;
      }
    } while (x >= size_);
    return static_cast<std::int64_t>(x);
  }
  /// The index that is mapped to `value`: each step undone, last first.
  [[nodiscard]] std::int64_t inverse(std::int64_t value) const {
    auto x = static_cast<std::uint64_t>(value);
    do {
      for (std::size_t i = rounds_.size(); i-- > 0;) {
        x ^= x >> shift_;  // 2 * shift > bits, so the fold undoes itself
        x = (x * reciprocal(rounds_[i].factor) - rounds_[i].add) & mask_;
      }
    } while (x >= size_);
    return static_cast<std::int64_t>(x);
  }

 private:
  struct Round {
    std::uint64_t add = 0;
    std::uint64_t factor = 1;
  };
  /// Inverse of an odd number modulo 2^64: Newton's iteration doubles the right bits, from 3.
  static std::uint64_t reciprocal(std::uint64_t odd) {
    std::uint64_t x = odd;
    for (int correct = 3; correct < 64; correct *= 2) {
      x *= 2 - odd * x;
    }
    return x;
  }
  std::uint64_t size_;
  std::uint64_t mask_ = 0;
  int shift_ = 1;
  std::array<Round, 4> rounds_;
};

}  // namespace stepcast::internal

namespace stepcast {

struct Access::Data {
  AccessKind kind = AccessKind::kUniform;
  std::int64_t rows = 0;
  double exponent = 0;
  std::uint64_t seed = 0;
  double sample_lookups = 0;  ///< n0; 0 for a law
  internal::PopularityCurve curve;
  bool shuffled = false;  ///< row ids are `permutation` of the ranks
  internal::Permutation permutation{1, 0};
  std::vector<std::int64_t> recorded = {};     ///< indices: the ids in their order,
  std::vector<std::int64_t> rank_of = {};      ///< the rank of each,
  std::vector<std::int64_t> rows_seen = {};    ///< the distinct ids by rank
  std::vector<std::int64_t> rows_sorted = {};  ///< and by id
  /// A random subset's underlying law; null otherwise.
  std::shared_ptr<const Data> subset_of = nullptr;

  [[nodiscard]] bool sampled() const { return sample_lookups > 0; }
};

}  // namespace stepcast
