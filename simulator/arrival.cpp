#include "simulator/arrival.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/cost_model.h"

namespace stepcast::simulator {
namespace {

/// Expected number of ranks later than x.
double later_than(std::span<const Arrival> arrivals, double x) {
  double count = 0;
  for (const Arrival& a : arrivals) {
    const double ranks = static_cast<double>(a.ranks);
    if (a.spread > 0) {
      count += ranks * 0.5 * std::erfc((x - a.mean) / a.spread / std::numbers::sqrt2);
    } else {
      count += a.mean > x ? ranks : 0;
    }
  }
  return count;
}

}  // namespace

std::int64_t expected_last(std::span<const Arrival> arrivals) {
  double latest = arrivals.front().mean;
  double widest = 0;
  double ranks = 0;
  for (const Arrival& a : arrivals) {
    latest = std::max(latest, a.mean);
    widest = std::max(widest, a.spread);
    ranks += static_cast<double>(a.ranks);
  }
  if (widest <= 0) {
    return std::llround(latest);
  }
  if (arrivals.size() == 1) {
    return std::llround(latest + widest * models::expected_maximum(arrivals.front().ranks));
  }
  const double target = 0.625 * ranks / (ranks + 0.25);
  double low = latest;
  double high = latest + 8 * widest;  // d_n < 8 for any number of ranks there is
  if (later_than(arrivals, low) <= target) {
    return std::llround(latest);
  }
  while (high - low > 0.25) {
    const double middle = (low + high) / 2;
    (later_than(arrivals, middle) > target ? low : high) = middle;
  }
  return std::llround((low + high) / 2);
}

}  // namespace stepcast::simulator
