#include "studies/fit/error_statistics.h"

#include <algorithm>
#include <cmath>

namespace stepcast::studies {

ErrorStatistics statistics_of(std::span<const double> errors) {
  ErrorStatistics s;
  s.n = errors.size();
  if (errors.empty()) {
    return s;
  }
  const auto n = static_cast<double>(errors.size());
  std::vector<double> sorted;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const double a = std::abs(errors[i]);
    sorted.push_back(a);
    s.mean += a / n;
    s.bias += errors[i] / n;
    s.geomean += std::log(a + 4e-4) / n;
    if (a > s.worst) {
      s.worst = a;
      s.worst_index = i;
    }
  }
  s.geomean = std::exp(s.geomean);
  std::sort(sorted.begin(), sorted.end());
  s.median = interpolated_quantile(sorted, 0.5);
  s.p90 = sorted[static_cast<std::size_t>(std::ceil(0.9 * n)) - 1];  // nearest rank
  return s;
}

double kendall_tau(std::span<const double> predicted, std::span<const double> measured) {
  double balance = 0;
  double ordered_predicted = 0;
  double ordered_measured = 0;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    for (std::size_t j = i + 1; j < measured.size(); ++j) {
      const auto sign = [](double d) { return d > 0 ? 1.0 : d < 0 ? -1.0 : 0.0; };
      const double p = sign(predicted[i] - predicted[j]);
      const double m = sign(measured[i] - measured[j]);
      balance += p * m;
      ordered_predicted += p * p;
      ordered_measured += m * m;
    }
  }
  const double pairs = std::sqrt(ordered_predicted * ordered_measured);
  return pairs > 0 ? balance / pairs : 0;
}

double regret_of(std::span<const double> predicted, std::span<const double> measured) {
  if (measured.empty()) {
    return 0;
  }
  const auto chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  return measured[static_cast<std::size_t>(chosen)] /
             *std::min_element(measured.begin(), measured.end()) -
         1;
}

double permuted_error(std::span<const double> predicted, std::span<const double> measured) {
  double sum = 0;
  double count = 0;
  for (std::size_t shift = 1; shift < measured.size(); ++shift) {
    for (std::size_t i = 0; i < measured.size(); ++i) {
      sum += std::abs(predicted[(i + shift) % measured.size()] / measured[i] - 1);
      ++count;
    }
  }
  return count > 0 ? sum / count : 0;
}

}  // namespace stepcast::studies
