#include "planner/internal/pattern_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace stepcast::planner::internal {
namespace {

constexpr std::size_t kCoarse = 832;  // loads told apart while patterns are priced
constexpr std::size_t kFine = 8192;   // in the final check
constexpr double kTolerance = 1e-6;
constexpr double kClose = 1e-3;  // of the program's optimum: near enough
constexpr double kPoor = 0.6;    // of the mean worth of a second: such items are in no good pattern
constexpr double kTowardsCentre = 0.6;  // smoothing of the dual values

/// One piece of an option: its load on a rank, and the part of the table it is.
struct Item {
  double load = 0;
  double part = 1;
  std::size_t option = 0;
};

/// What a rank holds: item by table, -1 for none.
using Pattern = std::vector<std::int32_t>;

/// Least load that an option puts on any rank that holds a piece of it.
Item item_of(const PlacementOption& o, std::size_t option, std::int32_t ranks) {
  const Ticks load = total(o.load);
  Ticks least = o.skew.empty() ? 0 : std::numeric_limits<Ticks>::max();
  for (const Load& extra : o.skew) {
    least = std::min(least, total(extra));
  }
  const std::int32_t copies = o.group == ranks ? o.pieces : 1;
  return {load_seconds((load + least) * copies),
          1.0 / (static_cast<double>(o.pieces) * o.group / copies), option};
}

/// The tables' items under one set of charges.
class Items {
 public:
  Items(const PlacementProblem& problem, std::uint32_t routes, double most) {
    for (const PlacementTable& table : problem.tables) {
      std::vector<Item> here;
      double common = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < table.options.size(); ++i) {
        const PlacementOption& o = table.options[i];
        if ((o.routes & ~routes) != 0) {
          continue;
        }
        const double everywhere = load_seconds(total(o.everywhere));
        const Item item = item_of(o, i, problem.ranks);
        if (item.load + everywhere <= most) {
          here.push_back(item);
          common = std::min(common, everywhere);
        }
      }
      if (here.empty()) {
        possible_ = false;
        return;
      }
      common_ += common;
      std::sort(here.begin(), here.end(), [](const Item& a, const Item& b) {
        return a.part != b.part ? a.part > b.part : a.load < b.load;
      });
      // A smaller part must be lighter.
      std::vector<Item> kept;
      for (const Item& i : here) {
        if (kept.empty() || i.load < kept.back().load) {
          kept.push_back(i);
        }
      }
      tables_.push_back(std::move(kept));
    }
  }
  [[nodiscard]] bool possible() const { return possible_; }
  /// What every placement puts on every rank.
  [[nodiscard]] double common() const { return common_; }
  /// Mean load of the cheapest options.
  [[nodiscard]] double mean(double ranks) const {
    double sum = 0;
    for (const auto& table : tables_) {
      double least = std::numeric_limits<double>::infinity();
      for (const Item& i : table) {
        least = std::min(least, i.load / i.part);
      }
      sum += least;
    }
    return sum / ranks;
  }
  [[nodiscard]] const std::vector<std::vector<Item>>& tables() const { return tables_; }

 private:
  std::vector<std::vector<Item>> tables_;
  double common_ = 0;
  bool possible_ = true;
};

/// Most value by load, on a grid of `cells` steps of `step` seconds.
template <typename Number>
class Knapsack {
 public:
  /// `traced`: patterns will be asked for.
  Knapsack(const Items& items, std::size_t cells, double step, double rounding, bool traced)
      : items_(items), cells_(cells) {
    for (const auto& table : items.tables()) {
      auto& to = weights_.emplace_back();
      for (const Item& i : table) {
        to.push_back(static_cast<std::size_t>(
            std::max(0.0, std::floor(i.load / step * (1 - 1e-12) + rounding))));
      }
    }
    best_.assign(traced ? items.tables().size() + 1 : 2, std::vector<Number>(cells + 1, 0));
  }

  /// The curve V(values, .) by grid cell; items worth less than `poor` a second are left out.
  std::span<const Number> solve(std::span<const double> values, double poor = 0) {
    std::fill(best_[0].begin(), best_[0].end(), Number{0});
    for (std::size_t t = 0; t < weights_.size(); ++t) {
      const Number* from = best_[t % best_.size()].data();
      Number* to = best_[(t + 1) % best_.size()].data();
      bool first = true;
      for (std::size_t i = 0; i < weights_[t].size(); ++i) {
        const std::size_t w = weights_[t][i];
        const auto value = static_cast<Number>(values[t] * items_.tables()[t][i].part);
        if (w > cells_ || value <= 0 ||
            static_cast<double>(value) < poor * items_.tables()[t][i].load) {
          continue;
        }
        const Number* without = first ? from : to;
        for (std::size_t c = 0; c <= cells_ - w; ++c) {
          to[c + w] = std::max(without[c + w], from[c] + value);
        }
        if (first) {
          std::copy_n(from, w, to);
        }
        first = false;
      }
      if (first) {
        std::copy_n(from, cells_ + 1, to);
      }
    }
    return best_[weights_.size() % best_.size()];
  }

  /// The pattern that attains the curve at a cell.
  [[nodiscard]] Pattern at(std::size_t cell, std::span<const double> values) const {
    Pattern pattern(weights_.size(), -1);
    for (std::size_t t = weights_.size(); t-- > 0;) {
      if (best_[t + 1][cell] == best_[t][cell]) {
        continue;
      }
      for (std::size_t i = 0; i < weights_[t].size(); ++i) {
        const std::size_t w = weights_[t][i];
        const auto value = static_cast<Number>(values[t] * items_.tables()[t][i].part);
        if (w <= cell && best_[t][cell - w] + value == best_[t + 1][cell]) {
          pattern[t] = static_cast<std::int32_t>(i);
          cell -= w;
          break;
        }
      }
    }
    return pattern;
  }

 private:
  const Items& items_;
  std::size_t cells_;
  std::vector<std::vector<std::size_t>> weights_;
  std::vector<std::vector<Number>> best_;
};

/// Revised simplex on  min sum z, patterns cover every table at least once, z >= 0.
class Master {
 public:
  explicit Master(const Items& items) : items_(items), n_(items.tables().size()) {
    inverse_.assign(n_ * n_, 0);
    cost_.assign(n_, 1);
    basis_.assign(n_, Pattern(n_, -1));
    for (std::size_t t = 0; t < n_; ++t) {  // each table alone, in its largest part
      basis_[t][t] = 0;
      inverse_[t * n_ + t] = 1 / items.tables()[t].front().part;
      level_.push_back(inverse_[t * n_ + t]);
    }
  }
  [[nodiscard]] std::vector<double> duals() const {
    std::vector<double> v(n_, 0);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t t = 0; t < n_; ++t) {
        v[t] += cost_[i] * inverse_[i * n_ + t];
      }
    }
    return v;
  }
  [[nodiscard]] double value() const {
    double sum = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      sum += cost_[i] * level_[i];
    }
    return sum;
  }
  [[nodiscard]] double worth(const Pattern& p, std::span<const double> values) const {
    double sum = 0;
    for (std::size_t t = 0; t < n_; ++t) {
      sum += p[t] >= 0 ? values[t] * part(t, p) : 0;
    }
    return sum;
  }
  bool enter(const Pattern& p) {
    std::vector<double> column(n_, 0);
    for (std::size_t t = 0; t < n_; ++t) {
      column[t] = p[t] >= 0 ? part(t, p) : 0;
    }
    return pivot(column, 1, p);
  }
  /// More of a table than needed: the slack of its row.
  bool enter_slack(std::size_t t) {
    std::vector<double> column(n_, 0);
    column[t] = -1;
    return pivot(column, 0, Pattern(n_, -1));
  }
  /// Part of table t that lies in its item i.
  [[nodiscard]] double covered(std::size_t t, std::int32_t i) const {
    double sum = 0;
    for (std::size_t b = 0; b < n_; ++b) {
      sum += basis_[b][t] == i ? level_[b] * part(t, basis_[b]) : 0;
    }
    return sum;
  }

 private:
  [[nodiscard]] double part(std::size_t t, const Pattern& p) const {
    return items_.tables()[t][static_cast<std::size_t>(p[t])].part;
  }
  bool pivot(const std::vector<double>& column, double cost, const Pattern& pattern) {
    std::vector<double> d(n_, 0);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t t = 0; t < n_; ++t) {
        d[i] += inverse_[i * n_ + t] * column[t];
      }
    }
    std::size_t leave = n_;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < n_; ++i) {
      if (d[i] > 1e-9) {
        const double ratio = std::max(0.0, level_[i]) / d[i];
        if (ratio < least - 1e-12 || (ratio < least + 1e-12 && leave < n_ && d[i] > d[leave])) {
          least = ratio;
          leave = i;
        }
      }
    }
    if (leave == n_) {
      return false;
    }
    for (std::size_t t = 0; t < n_; ++t) {
      inverse_[leave * n_ + t] /= d[leave];
    }
    level_[leave] /= d[leave];
    for (std::size_t i = 0; i < n_; ++i) {
      if (i == leave || d[i] == 0) {
        continue;
      }
      for (std::size_t t = 0; t < n_; ++t) {
        inverse_[i * n_ + t] -= d[i] * inverse_[leave * n_ + t];
      }
      level_[i] -= d[i] * level_[leave];
    }
    cost_[leave] = cost;
    basis_[leave] = pattern;
    return true;
  }

  const Items& items_;
  std::size_t n_;
  std::vector<double> inverse_, cost_, level_;
  std::vector<Pattern> basis_;
};

double sum_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) {
    sum += v;
  }
  return sum;
}

/// The largest load, on a curve's grid, that values prove too small for all ranks.
template <typename Number>
std::size_t proven_cells(std::span<const Number> curve, double ranks, double sum) {
  const auto at = std::partition_point(curve.begin(), curve.end(), [&](Number v) {
    return ranks * static_cast<double>(v) < sum * (1 - kTolerance);
  });
  return static_cast<std::size_t>(at - curve.begin());
}

/// The least load of the busiest rank that one set of charges leaves possible, `most` at most.
struct LeastLoad {
  double value = 0;
  std::vector<std::vector<double>> covered;  ///< by table, item
};
LeastLoad least_load(const Items& items, double ranks, double known, double most,
                     std::uint64_t knapsacks) {
  const double step = most / static_cast<double>(kCoarse);
  Knapsack<float> coarse(items, kCoarse, step, 0.5, true);
  Master master(items);
  const std::size_t n = items.tables().size();
  // From the values of the mean load: the loads of whole tables.
  std::vector<double> centre(n);
  for (std::size_t t = 0; t < n; ++t) {
    centre[t] = std::numeric_limits<double>::infinity();
    for (const Item& i : items.tables()[t]) {
      centre[t] = std::min(centre[t], i.load / i.part);
    }
    centre[t] /= most;
  }
  std::vector<double> best = centre;
  auto cell = static_cast<std::size_t>(std::clamp(known / step, 1.0, static_cast<double>(kCoarse)));
  std::size_t best_proven = 0;
  double best_share = 0;  // sum of values over ranks times the best pattern, at the cell
  std::vector<double> values(n);
  while (knapsacks > 0 && cell < kCoarse) {
    const std::vector<double> exact = master.duals();
    const auto slack = std::find_if(exact.begin(), exact.end(), [](double v) { return v < -1e-9; });
    if (slack != exact.end()) {
      --knapsacks;
      if (!master.enter_slack(static_cast<std::size_t>(slack - exact.begin()))) {
        break;
      }
      continue;
    }
    const bool suffice = master.value() <= ranks * (1 + 1e-9);
    if (suffice && master.value() <= ranks * best_share * (1 + kClose)) {
      break;
    }
    bool entered = false;
    for (const double smooth : {kTowardsCentre, 0.0}) {
      for (std::size_t t = 0; t < n; ++t) {
        values[t] = std::max(0.0, smooth * centre[t] + (1 - smooth) * exact[t]);
      }
      --knapsacks;
      const double mean_worth = sum_of(values) / (ranks * static_cast<double>(cell) * step);
      const auto curve = coarse.solve(values, kPoor * mean_worth);
      const double top = curve[cell];
      const double share = sum_of(values) / (ranks * std::max(top, 1e-30));
      const std::size_t proven = proven_cells<float>(curve, ranks, sum_of(values));
      if (proven > best_proven) {
        best_proven = proven;
        best = values;
      }
      if (share > best_share) {
        best_share = share;
        for (std::size_t t = 0; t < n; ++t) {
          centre[t] = values[t] / std::max(top, 1e-30);
        }
        if (proven > cell && !suffice) {
          cell = std::min(proven, kCoarse);
          best_share = sum_of(values) / (ranks * std::max<double>(curve[cell], 1e-30));
        }
      }
      const Pattern p = coarse.at(cell, values);
      if (master.worth(p, exact) > 1 + 1e-6) {
        entered = master.enter(p);
        break;
      }
      if (knapsacks == 0) {
        break;
      }
    }
    if (!entered) {
      break;
    }
  }
  const double fine = most / static_cast<double>(kFine);
  Knapsack<double> exact(items, kFine, fine, 0, false);
  const std::size_t cells = proven_cells<double>(exact.solve(best), ranks, sum_of(best));
  LeastLoad found;
  found.value = std::max(known, std::min(most, static_cast<double>(cells) * fine));
  for (std::size_t t = 0; t < n; ++t) {
    auto& to = found.covered.emplace_back();
    for (std::size_t i = 0; i < items.tables()[t].size(); ++i) {
      to.push_back(master.covered(t, static_cast<std::int32_t>(i)));
    }
  }
  return found;
}

}  // namespace

PatternBound::PatternBound(const PlacementProblem& problem) : problem_(problem) {
  std::uint32_t used = 0;
  for (const PlacementTable& table : problem.tables) {
    for (const PlacementOption& o : table.options) {
      used |= o.routes;
    }
  }
  for (std::uint32_t set = used;; set = (set - 1) & used) {
    double fixed = load_seconds(problem.constant);
    for (std::size_t f = 0; f < problem.fixed.size(); ++f) {
      fixed += (set >> f & 1U) != 0 ? load_seconds(problem.fixed[f]) : 0;
    }
    const Items items(problem, set, std::numeric_limits<double>::infinity());
    if (items.possible()) {
      charges_.push_back(
          {set, fixed, fixed + items.common() + items.mean(problem.ranks), false, {}});
    }
    if (set == 0) {
      break;
    }
  }
}

void PatternBound::solve(Charges& charges, Ticks known, Ticks in_hand, std::uint64_t knapsacks) {
  charges.solved = true;
  const Items items(problem_, charges.routes, load_seconds(in_hand) - charges.fixed);
  const double fixed = charges.fixed + items.common();
  const double most = load_seconds(in_hand) - fixed;
  if (!items.possible() || most <= 0) {
    charges.least = load_seconds(in_hand);
    return;
  }
  const double mean = items.mean(problem_.ranks);
  const double from = std::max({0.0, load_seconds(known) - fixed, mean * (1 - 1e-9)});
  const LeastLoad least = least_load(items, problem_.ranks, from, most, knapsacks);
  charges.least = std::max(charges.least, fixed + least.value);
  for (std::size_t t = 0; t < problem_.tables.size(); ++t) {
    auto& to = charges.mix.emplace_back(problem_.tables[t].options.size(), 0.0);
    for (std::size_t i = 0; i < items.tables()[t].size(); ++i) {
      to[items.tables()[t][i].option] = least.covered[t][i];
    }
  }
}

const PatternBound::Charges* PatternBound::decisive(Ticks known, Ticks in_hand,
                                                    std::uint64_t knapsacks) {
  while (!charges_.empty()) {
    const auto least =
        std::min_element(charges_.begin(), charges_.end(),
                         [](const Charges& a, const Charges& b) { return a.least < b.least; });
    if (least->solved || least->least >= load_seconds(in_hand)) {
      return &*least;
    }
    solve(*least, known, in_hand, knapsacks);
  }
  return nullptr;
}

Mix PatternBound::mix(Ticks known, Ticks in_hand, std::uint64_t knapsacks) {
  const Charges* c = decisive(known, in_hand, knapsacks);
  return c == nullptr ? Mix{} : c->mix;
}

Ticks PatternBound::value(Ticks known, Ticks in_hand, std::uint64_t knapsacks) {
  const Charges* c = decisive(known, in_hand, knapsacks);
  const double bound = std::min(load_seconds(in_hand), c == nullptr ? 0 : c->least);
  return std::clamp(static_cast<Ticks>(std::floor(bound * (1 - 1e-9) * 1e15)),
                    std::min(known, in_hand), in_hand);
}

}  // namespace stepcast::planner::internal
