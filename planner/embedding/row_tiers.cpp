#include "planner/embedding/row_tiers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/access/popular_rows.h"

namespace stepcast::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

double AccessCounting::u(double c) const {
  return dedup_over > 0 ? -dedup_over * std::expm1(-c / dedup_over) : c;
}

double AccessCounting::inverse(double value) const {
  if (dedup_over <= 0) {
    return value;
  }
  return value >= dedup_over ? kNever : -dedup_over * std::log1p(-value / dedup_over);
}

std::vector<double> level_thresholds(std::span<const RowLevel> levels, const AccessCounting& count,
                                     double lambda) {
  // Walk from one copy towards more: a level enters the envelope where it overtakes the cheapest so
  // far; one that enters below its predecessor displaces it.
  const std::size_t n = levels.size();
  std::vector<double> above(n, kNever);
  if (n == 0) {
    return above;
  }
  const auto constant = [&](std::size_t i) {
    return levels[i].per_row + lambda * levels[i].memory;
  };
  const auto crossing = [&](std::size_t more, std::size_t fewer) {
    const double slope = levels[fewer].per_access - levels[more].per_access +
                         lambda * (levels[fewer].access_memory - levels[more].access_memory);
    const double gap = constant(more) - constant(fewer);
    return slope > 0 ? std::max(0.0, gap / slope) : gap < 0 ? -1.0 : kNever;
  };
  std::vector<std::size_t> envelope{n - 1};
  std::vector<double> starts{-1};
  for (std::size_t i = n - 1; i-- > 0;) {
    double start = crossing(i, envelope.back());
    while (envelope.size() > 1 && start <= starts.back()) {
      envelope.pop_back();
      starts.pop_back();
      start = crossing(i, envelope.back());
    }
    if (start == kNever) {
      continue;
    }
    if (envelope.size() == 1 && start <= 0 && constant(i) <= constant(envelope.back())) {
      envelope.back() = i;
      starts.back() = -1;
      continue;
    }
    envelope.push_back(i);
    starts.push_back(start);
  }
  for (std::size_t e = 0; e < envelope.size(); ++e) {
    above[envelope[e]] = starts[e] < 0 ? -1 : count.inverse(starts[e]);
  }
  return above;
}

RowTierCut cut_rows(const Access& access, double lookups, std::span<const double> thresholds) {
  RowTierCut cut;
  std::int64_t done = 0;
  double mass = 0;
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const bool rest = thresholds[i] < 0;
    const std::int64_t end =
        std::max(done, rest ? access.rows() : rows_above(access, lookups, thresholds[i]));
    const double upto = end >= access.rows() ? 1.0 : access.cdf(static_cast<double>(end)).value;
    cut.ends.push_back(end);
    cut.accesses.push_back(std::max(0.0, upto - mass));
    done = end;
    mass = std::max(mass, upto);
  }
  if (!cut.ends.empty()) {  // the last level takes what is left
    cut.accesses.back() += std::max(0.0, 1 - mass);
    cut.ends.back() = access.rows();
  }
  return cut;
}

RowTierCost cost_of(const Access& access, double lookups, const RowTierCut& cut,
                    std::span<const RowLevel> levels, const AccessCounting& count) {
  RowTierCost c;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const std::int64_t rows = cut.ends[i] - first;
    double touches = lookups * cut.accesses[i];
    if (count.dedup_over > 0 && rows > 0) {
      // Sum of u(c) = W times the distinct rows that one of W ranks looks up.
      const auto [part, mass] = access.ranks(first, cut.ends[i]);
      touches =
          mass > 0 ? count.dedup_over * part.unique(lookups * mass / count.dedup_over).value : 0;
    }
    c.touches.push_back(touches);
    c.cost += levels[i].per_access * touches + levels[i].per_row * static_cast<double>(rows);
    c.memory += levels[i].access_memory * touches + levels[i].memory * static_cast<double>(rows);
    first = cut.ends[i];
  }
  return c;
}

}  // namespace stepcast::planner
