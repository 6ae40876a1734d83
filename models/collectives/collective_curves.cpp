#include "models/collectives/collective_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/error.h"

namespace stepcast::models {
namespace {

constexpr double kDrift = 0.05;   // where the form is flat, time rises evenly in ln bytes
constexpr double kSame = 1e-3;    // knots closer than this are one
constexpr double kInside = 1e-6;  // group inside one unit: size = members

bool one_unit(double log_size, double log_members) { return log_size - log_members < kInside; }

}  // namespace

CollectivePlace place_of(double bytes, const GroupShape& group) {
  const std::int64_t members = group.members.empty() ? group.size : group.members[0];
  return {std::log(std::max(bytes, 1.0)), std::log(static_cast<double>(group.size)),
          std::log(static_cast<double>(std::max<std::int64_t>(members, 1)))};
}

CollectiveCurves::CollectiveCurves(const FittedModel& model) {
  std::map<std::pair<double, double>, std::vector<Knot>> by_group;
  for (const FittedModel::Point& p : model.points) {
    STEPCAST_CHECK(p.features.size() == 2 || p.features.size() == 3,
                   "a collective's point has features log_bytes, log_size, log_members, not {}",
                   p.features.size());
    by_group[{p.features[1], p.features.back() == p.features[1] || p.features.size() == 2
                                 ? p.features[1]
                                 : p.features[2]}]
        .push_back({p.features[0], p.log_ratio});
  }
  for (auto& [group, knots] : by_group) {
    std::sort(knots.begin(), knots.end(),
              [](const Knot& a, const Knot& b) { return a.log_bytes < b.log_bytes; });
    curves_.push_back({group.first, group.second, std::move(knots)});
  }
}

CollectiveCurves::Neighbours CollectiveCurves::neighbours(const CollectivePlace& place) const {
  const bool inside = one_unit(place.log_size, place.log_members);
  // Among curves of one size the one with the nearest number of members per unit stands for it.
  const auto nearer = [&](const Curve& a, const Curve* b) {
    return b == nullptr || a.log_size != b->log_size ||
           std::abs(a.log_members - place.log_members) <
               std::abs(b->log_members - place.log_members);
  };
  Neighbours n;
  for (const Curve& curve : curves_) {
    if (one_unit(curve.log_size, curve.log_members) != inside) {
      continue;
    }
    if (curve.log_size <= place.log_size + kInside) {
      n.below = nearer(curve, n.below) ? &curve : n.below;
    }
    if (curve.log_size >= place.log_size - kInside &&
        (n.above == nullptr || curve.log_size == n.above->log_size)) {
      n.above = nearer(curve, n.above) ? &curve : n.above;
    }
  }
  const auto fading = [&](const Curve* curve) {
    const double sizes = std::abs(curve->log_size - place.log_size);
    const double members = inside ? 0 : std::abs(curve->log_members - place.log_members);
    return std::exp(-sizes - members);
  };
  if (n.below != nullptr && n.above != nullptr) {
    const double span = n.above->log_size - n.below->log_size;
    const double share = span > kInside ? (place.log_size - n.below->log_size) / span : 0;
    const auto members = [&](const Curve* curve) {
      return inside ? 1 : std::exp(-std::abs(curve->log_members - place.log_members));
    };
    n.weight_below = (1 - share) * members(n.below);
    n.weight_above = share * members(n.above);
  } else if (n.below != nullptr) {
    n.weight_below = fading(n.below);
  } else if (n.above != nullptr) {
    n.weight_above = fading(n.above);
  }
  return n;
}

double CollectiveCurves::at(const CollectivePlace& place, const LogTime& form) const {
  const Neighbours n = neighbours(place);
  // Two ascending knot lists, shifted to equal chunks, are walked as one.
  struct Walk {
    const Curve* curve;
    double weight, shift;
    std::size_t next = 0;

    [[nodiscard]] bool done() const { return next == curve->knots.size(); }
    [[nodiscard]] double position() const { return curve->knots[next].log_bytes + shift; }
    /// Weighted residual at `log_bytes`, constant beyond the ends; `next` is the first knot at or
    /// beyond it.
    [[nodiscard]] double residual(double log_bytes) const {
      if (next == 0 || done()) {
        return weight * (done() ? curve->knots.back() : curve->knots.front()).log_ratio;
      }
      const Knot& a = curve->knots[next - 1];
      const Knot& b = curve->knots[next];
      const double share = (log_bytes - shift - a.log_bytes) / (b.log_bytes - a.log_bytes);
      return weight * (a.log_ratio + share * (b.log_ratio - a.log_ratio));
    }
  };
  std::array<Walk, 2> walks{};
  std::size_t count = 0;
  for (const auto& [curve, weight] :
       {std::pair{n.below, n.weight_below}, {n.above, n.weight_above}}) {
    if (curve != nullptr && weight > 0) {
      walks[count++] = {curve, weight, place.log_size - curve->log_size};
    }
  }
  const double here = form(place.log_bytes);
  bool first = true;
  double last_position = 0;  // of the last knot passed: its bytes, corrected time and form
  double last_time = 0;
  double last_form = 0;
  while (true) {
    double position = std::numeric_limits<double>::infinity();
    for (std::size_t w = 0; w < count; ++w) {
      position = walks[w].done() ? position : std::min(position, walks[w].position());
    }
    if (std::isinf(position)) {
      return first ? 0 : last_time - last_form;  // beyond the last knot, or no knots
    }
    double residual = 0;
    for (std::size_t w = 0; w < count; ++w) {
      residual += walks[w].residual(position);
    }
    const double knot_form = form(position);
    const double time = first ? knot_form + residual : std::max(last_time, knot_form + residual);
    if (place.log_bytes <= position) {
      if (first) {
        return time - knot_form;
      }
      // Up: evenly as the form and a little as ln bytes, so also where the form is flat. Down: as
      // the form alone, which rises by more, so time does not fall.
      const double before = last_time - last_form;
      const double change = time - knot_form - before;
      const double drift = change > 0 ? kDrift : 0;
      const double passed = here - last_form + drift * (place.log_bytes - last_position);
      const double whole = knot_form - last_form + drift * (position - last_position);
      return before + (change != 0 ? change * passed / whole : 0);
    }
    first = false;
    last_position = position;
    last_time = time;
    last_form = knot_form;
    for (std::size_t w = 0; w < count; ++w) {
      while (!walks[w].done() && walks[w].position() < position + kSame) {
        ++walks[w].next;
      }
    }
  }
}

}  // namespace stepcast::models
