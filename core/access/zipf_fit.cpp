#include "core/access/zipf_fit.h"

#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <vector>

#include "core/access/internal/popularity_curve.h"
#include "core/error.h"

namespace stepcast {
namespace {

constexpr double kLargestExponent = 4;
constexpr double kStep = 0.1;  // of the first scan
constexpr double kPrecision = 1e-4;

/// P(X >= count) for X of a Poisson law, count >= 1.
double at_least(double count, double mean) {
  const double spread = 8 * std::sqrt(std::max(mean, count)) + 20;  // beyond it: below 1e-9
  if (mean > count + spread) {
    return 1;
  }
  return count > mean + spread ? 0 : boost::math::gamma_p(count, mean);
}

/// The edges that tell laws apart, and the share of lookups to rows looked up more often.
struct Shares {
  std::vector<double> above, share;
};

Shares recorded_shares(std::span<const ReuseBin> bins, double lookups) {
  Shares s;
  double least = lookups;  // every row was looked up more often
  for (const ReuseBin& b : bins) {
    least = b.unique_rows > 0 ? std::min(least, b.reuse_low) : least;
  }
  for (double c = 1; c < least; c *= 2) {
    s.above.push_back(c);
    s.share.push_back(1);
  }
  for (const ReuseBin& edge : bins) {
    if (edge.reuse_low < std::max(1.0, least)) {
      continue;  // all lookups go to rows looked up, and those above are there
    }
    double accesses = 0;
    for (const ReuseBin& b : bins) {
      accesses += b.reuse_low >= edge.reuse_low ? b.accesses : 0;
    }
    s.above.push_back(std::floor(edge.reuse_low));
    s.share.push_back(accesses / lookups);
  }
  if (s.above.empty()) {  // no row was seen twice
    s.above.push_back(1);
    s.share.push_back(0);
  }
  return s;
}

/// Recorded less expected share at each edge.
std::vector<double> differences(const Shares& recorded, double rows, double exponent,
                                double lookups) {
  const auto law = internal::PopularityCurve::zipf(rows, exponent, 0);
  std::vector<double> all = recorded.share;
  for (const internal::Atom& atom : law.atoms()) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      // E[X; X > c] = mean P(X >= c)
      all[i] -= atom.rows * atom.p * at_least(recorded.above[i], lookups * atom.p);
    }
  }
  return all;
}

}  // namespace

ZipfFit fit_zipf(std::int64_t rows, std::span<const ReuseBin> bins, double lookups) {
  STEPCAST_CHECK(rows >= 1 && lookups > 0, "{} lookups of {} rows", lookups, rows);
  const Shares recorded = recorded_shares(bins, lookups);
  const auto squares = [&](double exponent) {
    double sum = 0;
    for (const double d : differences(recorded, static_cast<double>(rows), exponent, lookups)) {
      sum += d * d;
    }
    return sum;
  };
  double best = 0;
  double least = squares(0);
  for (double a = kStep; a <= kLargestExponent + kStep / 2; a += kStep) {
    if (const double s = squares(a); s < least) {
      least = s;
      best = a;
    }
  }
  // Golden section between the neighbours of the best.
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double low = std::max(0.0, best - kStep);
  double high = std::min(kLargestExponent, best + kStep);
  while (high - low > kPrecision) {
    const double left = high - ratio * (high - low);
    const double right = low + ratio * (high - low);
    if (squares(left) <= squares(right)) {
      high = right;
    } else {
      low = left;
    }
  }
  ZipfFit fit{(low + high) / 2};
  if (squares(0) <= squares(fit.exponent)) {
    fit.exponent = 0;
  }
  for (const double d : differences(recorded, static_cast<double>(rows), fit.exponent, lookups)) {
    fit.error = std::max(fit.error, std::abs(d));
  }
  return fit;
}

}  // namespace stepcast
