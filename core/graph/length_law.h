#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace stepcast {

struct ExecutionGraph;
struct Op;

enum class LengthKind : std::uint8_t { kFixed, kUniform, kGeometric, kLogNormal, kCount };
std::string_view name_of(LengthKind kind);

/// How long a sequence is, in rows, at least 1. The rows of a sample are sequences laid end to end;
/// the last is cut where the sample ends, so a sample has no padding.
struct LengthLaw {
  LengthKind kind = LengthKind::kFixed;
  float first = 1;   ///< fixed: the length; uniform: the least; geometric: the mean; lognormal: the
                     ///< median
  float second = 0;  ///< uniform: the longest; lognormal: the standard deviation of the logarithm
  static constexpr std::array<std::string_view, 3> kFields{"kind", "first", "second"};
  bool operator==(const LengthLaw&) const = default;

  /// P(length <= rows), 1 for all large ones. Geometric: 1 - (1 - 1/mean)^rows. Lognormal: a real
  /// length rounded up, Phi(ln(rows / median) / deviation).
  [[nodiscard]] double at_most(std::int64_t rows) const;
};

/// Pairs of a query and a key it sees, expected in one sample of `rows` rows: the sum over its
/// sequences of n^2, causal n (n + 1) / 2. With p(n) the law, c(n) the pairs of a sequence and u(m)
/// the probability that one begins at row m,
///
///   u(0) = 1, u(m) = sum_n p(n) u(m - n)
///   E = sum_m u(m) [sum_{n < rows - m} p(n) c(n) + P(length >= rows - m) c(rows - m)]
///
/// (Feller, An Introduction to Probability Theory, vol. 1, chapter XIII: renewal events). Exact but
/// for rounding. Valid: rows 1 to 32,768; time grows with their square. The last `targets` rows of
/// a sequence see those before them, and of each other only themselves: causal, with t of them and
/// h others, h (h + 1) / 2 + t (h + 1) pairs.
double expected_pairs(const LengthLaw& law, std::int64_t rows, bool causal, std::int64_t targets);

constexpr std::int64_t kLongestJagged = 32'768;  ///< rows of a sample

/// Draws the rows at which the sequences of `samples` samples from `first_sample` of the step's
/// global batch on begin: rows of the whole, ascending, with all rows at the end. A pure function
/// of the law, the step and the samples' numbers, so every plan draws the same.
std::vector<std::int32_t> draw_offsets(const LengthLaw& law, std::int64_t rows, std::int64_t step,
                                       std::int64_t first_sample, std::int64_t samples);
/// Those that a jagged op of `rank` works on.
std::vector<std::int32_t> draw_offsets(const ExecutionGraph& graph, const Op& op, std::int32_t rank,
                                       std::int32_t microbatch, std::int64_t step);

}  // namespace stepcast
