#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>

namespace stepcast::planner::testing {

/// Values by chance, the same for the same seed.
class Draw {
 public:
  explicit Draw(unsigned seed) : rng_(seed) {}
  std::int64_t operator()(std::initializer_list<std::int64_t> values) {
    return *(values.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                  0, static_cast<std::ptrdiff_t>(values.size()) - 1)(rng_));
  }
  bool one_in(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(1, n)(rng_) == 1;
  }
  /// An index of that many.
  std::size_t below(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(rng_);
  }

 private:
  std::mt19937 rng_;
};

}  // namespace stepcast::planner::testing
