#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/access/access.h"
#include "core/access/internal/access_data.h"
#include "core/error.h"

namespace stepcast {
namespace {

using internal::Atom;
using internal::PopularityCurve;

constexpr double kFewCounts = 10;  // a count below this is too noisy to rank a row by
constexpr double kUnseenShare =
    0.01;  // flag an LRU answer when more lookups than this are to new rows

AccessAnswer certain(double value) { return {value, false, value, value}; }

AccessAnswer outside(double value, double low, double high) {
  return {std::clamp(value, low, high), true, low, high};
}

void check_amount(double amount, const char* what) {
  if (!(amount >= 0)) {
    throw InputError("access", fmt::format("{} {}; give a number of at least 0", amount, what));
  }
}

void check_lookups(double lookups) {
  if (!(lookups >= 0 && std::isfinite(lookups))) {
    throw InputError("access",
                     fmt::format("{} lookups; give a finite number of at least 0", lookups));
  }
}

struct Tail {
  double singles = 0;  ///< f_1, rows seen once
  double doubles = 0;  ///< f_2
  double unseen = 0;   ///< f_0 by Chao's estimate, at most the rows that were not seen
  double seen = 0;
};

Tail tail_of(const PopularityCurve& curve) {
  Tail tail;
  for (const Atom& atom : curve.atoms()) {
    tail.singles += atom.singles;
    tail.doubles += atom.doubles;
    tail.seen += atom.count > 0 ? atom.rows : 0;
  }
  tail.unseen = tail.doubles > 0 ? tail.singles * tail.singles / (2 * tail.doubles)
                                 : tail.singles * std::max(0.0, tail.singles - 1) / 2;
  tail.unseen = std::min(tail.unseen, std::max(0.0, curve.rows() - tail.seen));
  return tail;
}

/// Rows of `tail` first seen in `more` lookups after a sample of n0.
double new_rows(const Tail& tail, double n0, double more) {
  return tail.unseen > 0 ? -tail.unseen * std::expm1(-more * tail.singles / (n0 * tail.unseen)) : 0;
}

}  // namespace

AccessAnswer Access::unique(double lookups) const {
  check_lookups(lookups);
  const PopularityCurve& curve = data_->curve;
  if (!data_->sampled()) {
    return certain(curve.unique(lookups));
  }
  const double n0 = data_->sample_lookups;
  const double inside = std::min(lookups, n0);
  const double seen = std::min(
      {internal::rarefied_unique(curve.atoms(), n0 / curve.share(), inside / curve.share()), inside,
       curve.rows()});
  if (lookups <= n0) {
    return certain(seen);
  }
  const Tail tail = tail_of(curve);
  const double more = lookups - n0;
  const double high =
      std::min(curve.rows(), seen + (tail.singles > 0 ? more * tail.singles / n0 : 0));
  return outside(seen + new_rows(tail, n0, more), seen, std::max(seen, high));
}

AccessAnswer Access::seen_once(double lookups) const {
  check_lookups(lookups);
  const PopularityCurve& curve = data_->curve;
  if (!data_->sampled()) {
    return certain(curve.seen_once(lookups));
  }
  const double n0 = data_->sample_lookups;
  if (lookups <= n0) {
    const double once =
        internal::rarefied_seen_once(curve.atoms(), n0 / curve.share(), lookups / curve.share());
    return certain(std::min({once, lookups, curve.rows()}));
  }
  // n U'(n): the slope of U falls beyond the sample, from f_1 / n0 at its end.
  const Tail tail = tail_of(curve);
  const double high = std::min(curve.rows(), tail.singles > 0 ? lookups * tail.singles / n0 : 0);
  const double fall =
      tail.unseen > 0 ? std::exp(-(lookups - n0) * tail.singles / (n0 * tail.unseen)) : 0;
  return outside(high * fall, 0, high);
}

AccessAnswer Access::cdf(double k) const {
  check_amount(k, "rows");
  const PopularityCurve& curve = data_->curve;
  const double value = curve.mass(k);
  if (!data_->sampled() || k <= 0 || k >= curve.rows()) {
    return certain(value);
  }
  double low = 0;
  double fewest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < curve.atoms().size() && curve.rows_before(i) < k; ++i) {
    const Atom& atom = curve.atoms()[i];
    const double rows = std::min(atom.rows, k - curve.rows_before(i));
    low += rows * std::max(0.0, atom.count - 2 * std::sqrt(atom.count)) / data_->sample_lookups;
    fewest = atom.count;
  }
  return fewest < kFewCounts ? outside(value, std::min(low, value), value) : certain(value);
}

AccessAnswer Access::hit_rate(double capacity, CachePolicy policy) const {
  check_amount(capacity, "rows of cache capacity");
  if (policy == CachePolicy::kPinned) {
    return cdf(capacity);
  }
  const PopularityCurve& curve = data_->curve;
  const double value = curve.lru_hit(capacity);
  if (!data_->sampled() || capacity <= 0 || capacity >= curve.rows()) {
    return certain(value);
  }
  // Lookups of rows that the sample never saw (f_1 / n0 by Good and Turing) are missing from its
  // law.
  const double unseen = tail_of(curve).singles / data_->sample_lookups;
  return unseen > kUnseenShare ? outside(value, std::max(0.0, value - unseen), value)
                               : certain(value);
}

double Access::probability(double rank) const {
  const PopularityCurve& curve = data_->curve;
  if (!(rank >= 0 && rank < curve.rows())) {
    throw InputError("access", fmt::format("rank {} is outside 0..{}", rank, rows() - 1));
  }
  const double whole = std::floor(rank);
  if (curve.law()) {
    return curve.law()->at(whole);
  }
  const std::size_t i = curve.atom_at(whole);
  if (whole + 1 <= curve.rows_before(i) + curve.atoms()[i].rows) {
    return curve.atoms()[i].p;
  }
  return curve.mass(whole + 1) - curve.mass(whole);
}

}  // namespace stepcast
