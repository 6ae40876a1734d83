#include "core/statistics.h"

#include <algorithm>

#include "core/error.h"

namespace stepcast {

double quantile_of(std::vector<double> values, double q) {
  STEPCAST_CHECK(!values.empty(), "a quantile of nothing");
  const auto rank = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + rank, values.end());
  return values[static_cast<std::size_t>(rank)];
}

double interpolated_quantile(std::span<const double> sorted, double q) {
  STEPCAST_CHECK(!sorted.empty(), "a quantile of nothing");
  const double at = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double middle_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : interpolated_quantile(values, 0.5);
}

double weighted_quantile(std::vector<WeightedValue> values, double q) {
  constexpr double kRounding = 1e-12;
  std::sort(values.begin(), values.end());
  double all = 0;
  for (const auto& [value, weight] : values) {
    all += weight;
  }
  double below = 0;
  for (const auto& [value, weight] : values) {
    below += weight;
    if (below >= q * all * (1 - kRounding)) {
      return value;
    }
  }
  return values.empty() ? 0 : values.back().first;
}

}  // namespace stepcast
