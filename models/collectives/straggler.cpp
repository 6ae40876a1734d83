#include <cmath>

#include "models/cost_model.h"

namespace stepcast::models {
namespace {

/// Quantile of the standard normal: bisection on erfc; 60 halvings of [-40, 40] end below 1e-16.
double normal_quantile(double p) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double expected_maximum(std::int64_t n) {
  if (n <= 1) {
    return 0;
  }
  return normal_quantile((static_cast<double>(n) - 0.375) / (static_cast<double>(n) + 0.25));
}

}  // namespace stepcast::models
