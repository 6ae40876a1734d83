#include "planner/embedding/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace stepcast::planner {
namespace {

struct Relaxed {
  double mean = 0;  ///< seconds per rank
  double piece = 0;
  std::array<double, kMaxTiers> bytes{};  ///< over all ranks
  std::uint32_t routes = 0;
};

Relaxed relaxed(const PlacementOption& o, std::int32_t ranks) {
  Relaxed r;
  r.routes = o.routes;
  r.piece = load_seconds(o.piece_total());
  const double share = static_cast<double>(o.pieces) * o.group / ranks;
  const Load extras = o.sum_of_extras();
  for (std::size_t p = 0; p < kPhases; ++p) {
    r.mean += share * load_seconds(o.load[p]) + load_seconds(extras[p]) / ranks +
              load_seconds(o.everywhere[p]);
  }
  for (std::size_t t = 0; t < kMaxTiers; ++t) {
    r.bytes[t] = static_cast<double>(o.pieces) * o.group * static_cast<double>(o.bytes[t]) +
                 static_cast<double>(ranks) * static_cast<double>(o.bytes_everywhere[t]);
  }
  return r;
}

bool dominates(const Relaxed& a, const Relaxed& b) {
  bool better = a.mean <= b.mean && a.piece <= b.piece && (a.routes & ~b.routes) == 0;
  for (std::size_t t = 0; t < kMaxTiers; ++t) {
    better = better && a.bytes[t] <= b.bytes[t];
  }
  return better;
}

class Relaxation {
 public:
  explicit Relaxation(const PlacementProblem& problem) : problem_(problem) {
    for (const PlacementTable& table : problem.tables) {
      std::vector<Relaxed> options;
      for (const PlacementOption& o : table.options) {
        if (left_out(problem, table, o)) {
          continue;
        }
        const Relaxed r = relaxed(o, problem.ranks);
        if (std::none_of(options.begin(), options.end(),
                         [&r](const Relaxed& other) { return dominates(other, r); })) {
          std::erase_if(options, [&r](const Relaxed& other) { return dominates(r, other); });
          options.push_back(r);
        }
      }
      for (const Relaxed& r : options) {
        used_ |= r.routes;
      }
      options_.insert(options_.end(), options.begin(), options.end());
      ends_.push_back(options_.size());
    }
    for (const TierCapacity& tier : problem.tiers) {
      double sum = 0;
      for (const std::int64_t c : tier.capacity) {
        sum += static_cast<double>(c);
      }
      capacity_.push_back(sum);
    }
    std::vector<std::uint32_t> sets{0};
    for (std::size_t f = 0; f < problem.fixed.size(); ++f) {
      if ((used_ >> f & 1U) != 0) {
        const std::size_t n = sets.size();
        for (std::size_t i = 0; i < n; ++i) {
          sets.push_back(sets[i] | 1U << f);
        }
      }
    }
    std::erase_if(sets, [this](std::uint32_t set) { return !exact(set); });
    sets_ = std::move(sets);
  }

  /// g(T); multipliers are those of `price`.
  [[nodiscard]] double at(double target, const std::array<double, kMaxTiers>& price) const {
    double best = std::numeric_limits<double>::infinity();
    for (const std::uint32_t set : sets_) {
      best = std::min(best, sum(set, charge(set), target, price, best, nullptr));
    }
    return best;
  }

  /// Smallest T with g(T) <= T.
  [[nodiscard]] double target(const std::array<double, kMaxTiers>& price) const {
    double low = at(std::numeric_limits<double>::infinity(), price);
    double high = std::max(low, 1e-12);
    if (at(high, price) <= high) {
      return low;
    }
    for (int i = 0; i < 60 && at(high, price) > high; ++i) {
      high *= 2;
    }
    for (int i = 0; i < 40 && high - low > 1e-7 * high; ++i) {
      const double middle = (low + high) / 2;
      (at(middle, price) <= middle ? high : low) = middle;
    }
    return low;
  }

  /// Bytes over all ranks beyond the capacities, of the cheapest options: the slope in the
  /// multipliers.
  [[nodiscard]] std::array<double, kMaxTiers> excess(
      double target, const std::array<double, kMaxTiers>& price) const {
    std::array<double, kMaxTiers> bytes{};
    sum(used_, 0, target, price, std::numeric_limits<double>::infinity(), &bytes);
    for (std::size_t t = 0; t < kMaxTiers; ++t) {
      bytes[t] -= t < capacity_.size() ? capacity_[t] : 0;
    }
    return bytes;
  }

 private:
  [[nodiscard]] double charge(std::uint32_t set) const {
    double fixed = load_seconds(problem_.constant);
    for (std::size_t f = 0; f < problem_.fixed.size(); ++f) {
      fixed += (set >> f & 1U) != 0 ? load_seconds(problem_.fixed[f]) : 0;
    }
    return fixed;
  }

  /// Whether options within the set use all of it: other sets are dominated by a smaller one.
  [[nodiscard]] bool exact(std::uint32_t set) const {
    std::uint32_t used = 0;
    for (const Relaxed& o : options_) {
      used |= (o.routes & ~set) == 0 ? o.routes : 0;
    }
    return used == set;
  }

  double sum(std::uint32_t set, double fixed, double target,
             const std::array<double, kMaxTiers>& price, double enough,
             std::array<double, kMaxTiers>* bytes) const {
    double total = fixed;
    for (std::size_t t = 0; t < capacity_.size(); ++t) {
      total -= price[t] * capacity_[t];
    }
    std::size_t i = 0;
    for (const std::size_t end : ends_) {
      double best = std::numeric_limits<double>::infinity();
      std::size_t which = i;
      for (; i < end; ++i) {
        const Relaxed& o = options_[i];
        if ((o.routes & ~set) != 0 || o.piece + fixed > target) {
          continue;
        }
        double cost = o.mean;
        for (std::size_t t = 0; t < capacity_.size(); ++t) {
          cost += price[t] * o.bytes[t];
        }
        if (cost < best) {
          best = cost;
          which = i;
        }
      }
      total += best;
      if (bytes != nullptr && std::isfinite(best)) {
        for (std::size_t t = 0; t < kMaxTiers; ++t) {
          (*bytes)[t] += options_[which].bytes[t];
        }
      }
      if (!std::isfinite(best) || (bytes == nullptr && total >= enough && price == kFree)) {
        return std::isfinite(best) ? total : best;
      }
    }
    return total;
  }

  static constexpr std::array<double, kMaxTiers> kFree{};
  const PlacementProblem& problem_;
  std::vector<Relaxed> options_;
  std::vector<std::size_t> ends_;
  std::vector<double> capacity_;
  std::vector<std::uint32_t> sets_;
  std::uint32_t used_ = 0;
};

}  // namespace

LowerBound lower_bound(const PlacementProblem& problem) {
  const Relaxation relaxation(problem);
  std::array<double, kMaxTiers> price{};
  const double free = relaxation.target(price);
  const double means = relaxation.at(std::numeric_limits<double>::infinity(), price);
  LowerBound bound;
  bound.reason = free > means * (1 + 1e-6) ? "largest piece" : "mean load";
  // Rounded down to whole femtoseconds, so that floating-point sums never overstate it.
  const auto rounded = [](double seconds) {
    return static_cast<Femtoseconds>(std::floor(std::max(0.0, seconds) * (1 - 1e-9) * 1e15));
  };
  bound.without_memory = rounded(free);
  double best = free;
  // One tier after the other: its multiplier is where the cheapest options just fit.
  for (int round = 0; round < 2; ++round) {
    for (std::size_t t = 0; t < problem.tiers.size(); ++t) {
      auto trial = price;
      trial[t] = 0;
      if (relaxation.excess(best, trial)[t] <= 0) {
        price[t] = 0;
        continue;
      }
      double low = 0;
      double high = 1e-18;
      for (int i = 0; i < 60; ++i) {
        trial[t] = high;
        if (relaxation.excess(best, trial)[t] <= 0) {
          break;
        }
        low = high;
        high *= 4;
      }
      for (int i = 0; i < 24; ++i) {
        trial[t] = (low + high) / 2;
        (relaxation.excess(best, trial)[t] > 0 ? low : high) = trial[t];
      }
      for (const double m : {low, high}) {
        trial[t] = m;
        const double with = relaxation.target(trial);
        if (std::isfinite(with) && with > best * (1 + 1e-9)) {
          best = with;
          price = trial;
          bound.reason = "memory";
        }
      }
    }
  }
  bound.value = rounded(best);
  return bound;
}

}  // namespace stepcast::planner
