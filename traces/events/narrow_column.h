#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace stepcast::traces {

/// Whole numbers, of which most fit 32 bits: half the memory. `T` is made of an int64 and gives it
/// by `count()`, or is one.
template <typename T>
class NarrowColumn {
 public:
  void reserve(std::size_t n) { low_.reserve(n); }
  [[nodiscard]] std::size_t size() const { return low_.size(); }
  [[nodiscard]] T operator[](std::size_t i) const {
    const auto low = low_[i];
    const std::size_t block = i / kBlock;
    if (block >= high_.size() || high_[block].empty()) {
      return T{low};
    }
    const auto upper = static_cast<std::uint64_t>(high_[block][i % kBlock]) << 32U;
    return T{static_cast<std::int64_t>(upper | static_cast<std::uint32_t>(low))};
  }
  void set(std::size_t i, T value) {
    const std::int64_t whole = whole_of(value);
    const std::size_t block = i / kBlock;
    low_[i] = static_cast<std::int32_t>(whole);
    if (std::in_range<std::int32_t>(whole) && (block >= high_.size() || high_[block].empty())) {
      return;
    }
    high_.resize(std::max(high_.size(), block + 1));
    if (high_[block].empty()) {
      high_[block].resize(kBlock);
      const std::size_t first = block * kBlock;
      for (std::size_t k = first; k < std::min(low_.size(), first + kBlock); ++k) {
        high_[block][k - first] = low_[k] < 0 ? -1 : 0;
      }
    }
    high_[block][i % kBlock] = static_cast<std::int32_t>(whole >> 32U);
  }
  void push_back(T value) {
    low_.push_back(0);
    set(low_.size() - 1, value);
  }
  bool operator==(const NarrowColumn& other) const {
    bool same = size() == other.size();
    for (std::size_t i = 0; same && i < size(); ++i) {
      same = (*this)[i] == other[i];
    }
    return same;
  }

 private:
  static constexpr std::size_t kBlock = 1024;
  static constexpr std::int64_t whole_of(std::int64_t value) { return value; }
  template <typename Duration>
  static constexpr std::int64_t whole_of(Duration value) {
    return value.count();
  }

  std::vector<std::int32_t> low_;
  /// Upper halves, by block; empty: all of the block fit 32 bits.
  std::vector<std::vector<std::int32_t>> high_;
};

}  // namespace stepcast::traces
