#include "planner/embedding/internal/smooth_descent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/numbers.h"
#include "core/split_mix.h"

namespace stepcast::planner::internal {
namespace {

constexpr std::size_t kRefresh = 64;   // tables after which what bounds prices is looked up again
constexpr int kLate = 10;              // more sweeps where nothing fitted
constexpr double kFirstBytes = 2;      // price of a rank's capacity, in objectives
constexpr double kMoreBytes = 2;       // times that with every sweep
constexpr double kLeast = -1 + 1e-12;  // what is left of a sum of exponentials, less one

/// Tables, those first whose lightest option is heaviest.
std::vector<std::size_t> heaviest_first(const PlacementProblem& problem) {
  std::vector<Femtoseconds> weight;
  for (const PlacementTable& table : problem.tables) {
    Femtoseconds least = std::numeric_limits<Femtoseconds>::max();
    for (const PlacementOption& o : table.options) {
      const std::int64_t share = static_cast<std::int64_t>(o.pieces) * o.group;
      least = std::min(least, total(o.load) * share / problem.ranks + total(o.everywhere));
    }
    weight.push_back(least);
  }
  std::vector<std::size_t> order(problem.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
  return order;
}

}  // namespace

SmoothDescent::SmoothDescent(const PlacementProblem& problem, double scale)
    : problem_(problem),
      phases_(problem.phases()),
      ranks_(index(problem.ranks)),
      scale_(scale),
      placement_(problem.tables.size()),
      route_uses_(problem.fixed.size(), 0),
      tables_on_(ranks_),
      price_(ranks_) {
  for (const std::size_t p : phases_) {
    load_[p].assign(ranks_, 0);
    exp_[p].assign(ranks_, 1);
  }
  for (const TierCapacity& tier : problem.tiers) {
    auto& room = room_.emplace_back();
    for (std::size_t r = 0; r < ranks_; ++r) {
      room.push_back(static_cast<double>(tier.capacity[r / index(tier.shared_by)]));
    }
    least_room_.push_back(0);
    on_all_.push_back(0);
  }
}

void SmoothDescent::sharpen(double b) {
  Femtoseconds piece = 1;
  for (std::size_t t = 0; t < placement_.size(); ++t) {
    if (placement_[t].option >= 0) {
      const Load& load = problem_.tables[t].options[index(placement_[t].option)].load;
      piece = std::max(piece, *std::max_element(load.begin(), load.end()));
    }
  }
  b_ = std::min(b, kSteepest / load_seconds(piece));
  for (const std::size_t p : phases_) {
    top_[p] = *std::max_element(load_[p].begin(), load_[p].end());
    sum_[p] = 0;
    for (std::size_t r = 0; r < ranks_; ++r) {
      exp_[p][r] = std::exp(b * load_seconds(load_[p][r] - top_[p]));
      sum_[p] += exp_[p][r];
    }
  }
  refresh();
}

void SmoothDescent::refresh() {
  for (const std::size_t p : phases_) {
    least_exp_[p] = *std::min_element(exp_[p].begin(), exp_[p].end());
  }
  for (std::size_t tier = 0; tier < room_.size(); ++tier) {
    least_room_[tier] =
        *std::min_element(room_[tier].begin(), room_[tier].end()) - taken_on_all(tier);
  }
}

void SmoothDescent::load_rank(std::size_t phase, std::size_t rank, Femtoseconds load) {
  Femtoseconds& at = load_[phase][rank];
  double& e = exp_[phase][rank];
  at += load;
  const double before = e;
  e = exp_of(b_ * load_seconds(at - top_[phase]));
  // Digits of the other terms are lost once the term that decided the sum is gone.
  sum_[phase] = before > sum_[phase] / 2
                    ? std::accumulate(exp_[phase].begin(), exp_[phase].end(), 0.0)
                    : sum_[phase] - before + e;
}

double SmoothDescent::taken_on_all(std::size_t tier) const {
  return on_all_[tier] * problem_.tiers[tier].shared_by;
}

void SmoothDescent::take_bytes(std::size_t tier, std::size_t unit, double bytes) {
  const std::size_t shared = index(problem_.tiers[tier].shared_by);
  const std::size_t end = std::min(ranks_, (unit + 1) * shared);
  for (std::size_t r = unit * shared; r < end; ++r) {
    double& room = room_[tier][r];
    room -= bytes;
    least_room_[tier] = std::min(least_room_[tier], room - taken_on_all(tier));
  }
}

void SmoothDescent::apply(std::size_t table, const Choice& choice, std::int64_t sign) {
  const PlacementOption& o = problem_.tables[table].options[index(choice.option)];
  const bool everywhere = o.group == problem_.ranks;
  const auto on_rank = [&](std::size_t rank, const Load& load, std::int64_t times) {
    for (const std::size_t p : phases_) {
      if (load[p] != 0) {
        load_rank(p, rank, times * load[p]);
      }
    }
  };
  for (const std::size_t p : phases_) {
    even_[p] += sign * (o.everywhere[p] + (everywhere ? o.pieces * o.load[p] : 0));
  }
  for (const PlacementOption::Skew& s : o.skew) {
    on_rank(index(o.rank_of(s, choice.groups)), o.extra(s), sign);
  }
  for (const std::int32_t g : choice.groups) {
    const std::size_t first = index(g * o.group);
    for (std::size_t r = first; r < first + index(o.group); ++r) {
      on_rank(r, o.load, sign);
    }
    if (o.group == 1 && o.skew.empty()) {
      auto& here = tables_on_[first];
      if (sign > 0) {
        here.push_back(static_cast<std::int32_t>(table));
      } else {
        here.erase(std::find(here.begin(), here.end(), static_cast<std::int32_t>(table)));
      }
    }
  }
  for (std::size_t tier = 0; tier < room_.size(); ++tier) {
    const std::size_t shared = index(problem_.tiers[tier].shared_by);
    const auto bytes = static_cast<double>(sign * o.bytes[tier]);
    const double all =
        static_cast<double>(sign * o.bytes_everywhere[tier]) + (everywhere ? o.pieces * bytes : 0);
    on_all_[tier] += all;
    least_room_[tier] -= all > 0 ? all * static_cast<double>(shared) : 0;
    for (const std::int32_t g : choice.groups) {
      for (std::int32_t r = g * o.group; bytes != 0 && r < (g + 1) * o.group; ++r) {
        take_bytes(tier, index(r) / shared, bytes);
      }
    }
  }
  for (std::size_t f = 0; f < route_uses_.size(); ++f) {
    route_uses_[f] += (o.routes >> f & 1U) != 0 ? static_cast<std::int32_t>(sign) : 0;
  }
}

void SmoothDescent::factors_of(const PlacementOption& o) {
  const bool everywhere = o.group == problem_.ranks;
  factors_.uneven.clear();
  for (const std::size_t p : phases_) {
    factors_.member[p] = everywhere ? 0 : exp_of(b_ * load_seconds(o.load[p])) - 1;
  }
  for (const PlacementOption::Skew& s : o.skew) {
    const Load extra = o.extra(s);
    for (const std::size_t p : phases_) {
      if (extra[p] != 0) {
        const Femtoseconds load = everywhere ? extra[p] : o.load[p] + extra[p];
        const double factor = exp_of(b_ * load_seconds(load)) - 1 - factors_.member[p];
        factors_.uneven.push_back({index(s.position), p, factor});
      }
    }
  }
}

double SmoothDescent::price_per_byte(std::size_t tier) const {
  const TierCapacity& t = problem_.tiers[tier];
  return byte_price_ * t.shared_by / static_cast<double>(std::max<std::int64_t>(1, t.capacity[0]));
}

void SmoothDescent::price_groups(const PlacementOption& o) {
  const std::size_t group = index(o.group);
  const std::size_t groups = ranks_ / group;
  std::fill(price_.begin(), price_.end(), 0.0);
  for (const std::size_t p : phases_) {
    if (o.load[p] != 0) {
      const double weight = factors_.member[p] / (sum_[p] * b_);
      const double* e = exp_[p].data();
      for (std::size_t r = 0; r < ranks_; ++r) {
        price_[r] += weight * e[r];
      }
    }
  }
  for (std::size_t tier = 0; tier < room_.size(); ++tier) {
    const std::int32_t members = std::min(problem_.tiers[tier].shared_by, o.group);
    const auto need = static_cast<double>(members * o.bytes[tier]);
    if (need > least_room_[tier]) {
      const double price = price_per_byte(tier) / members;
      const double* room = room_[tier].data();
      const double short_of = need + taken_on_all(tier);
      for (std::size_t r = 0; r < ranks_; ++r) {
        price_[r] += price * std::min(need, std::max(0.0, short_of - room[r]));
      }
    }
  }
  for (std::size_t g = 0; group > 1 && g < groups; ++g) {
    const auto first = price_.begin() + static_cast<std::ptrdiff_t>(g * group);
    price_[g] = std::accumulate(first, first + o.group, 0.0);
  }
  for (const Factors::Uneven& u : factors_.uneven) {
    if (o.uneven_pieces()) {
      break;  // which group gets the heavier piece is decided once they are picked
    }
    const double weight = u.factor / (sum_[u.phase] * b_);
    for (std::size_t g = 0; g < groups; ++g) {
      price_[g] += weight * exp_[u.phase][g * group + u.member];
    }
  }
}

void SmoothDescent::pick(const PlacementOption& o) {
  const std::int32_t groups = problem_.ranks / o.group;
  chosen_.clear();
  std::int32_t g = 0;
  for (; chosen_.size() < index(o.pieces) && g < groups; ++g) {
    chosen_.emplace_back(price_[index(g)], g);
    std::push_heap(chosen_.begin(), chosen_.end());
  }
  // Blocks without a group below the dearest one chosen are passed over.
  constexpr std::int32_t kBlock = 16;
  while (g < groups) {
    const std::int32_t end = std::min(groups, g + kBlock);
    bool any = false;
    for (std::int32_t i = g; i < end; ++i) {
      any |= price_[index(i)] < chosen_.front().first;
    }
    for (; any && g < end; ++g) {
      if (price_[index(g)] < chosen_.front().first) {
        std::pop_heap(chosen_.begin(), chosen_.end());
        chosen_.back() = {price_[index(g)], g};
        std::push_heap(chosen_.begin(), chosen_.end());
      }
    }
    g = end;
  }
}

/// The heaviest of uneven pieces goes to the group of least price.
void SmoothDescent::order_pieces(const PlacementOption& o) {
  if (!o.uneven_pieces()) {
    return;
  }
  std::sort(chosen_.begin(), chosen_.end());
  std::vector<std::int32_t> groups;
  for (const auto& [at, g] : chosen_) {
    groups.push_back(g);
  }
  groups = o.heaviest_first(std::move(groups));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    chosen_[i] = {price_[index(groups[i])], groups[i]};
  }
}

/// About the least that `rise` can be, on any groups.
double SmoothDescent::least_rise(const PlacementOption& o) const {
  double rise = 0;
  for (const std::size_t p : phases_) {
    if (factors_.member[p] != 0) {
      rise += std::log1p(o.pieces * o.group * least_exp_[p] * factors_.member[p] / sum_[p]);
    }
  }
  return rise / b_;
}

/// Rise of the smooth objective, with the prices of bytes, for the groups chosen.
double SmoothDescent::rise(const PlacementOption& o) const {
  const std::size_t group = index(o.group);
  std::array<double, kPhases> more{};
  double linear = 0;
  double price = 0;
  for (std::size_t piece = 0; piece < chosen_.size(); ++piece) {
    const auto& [at, g] = chosen_[piece];
    price += at;
    const std::size_t first = index(g) * group;
    for (const std::size_t p : phases_) {
      double members = 0;
      for (std::size_t r = first; factors_.member[p] != 0 && r < first + group; ++r) {
        members += exp_[p][r];
      }
      more[p] += members * factors_.member[p];
    }
    for (const Factors::Uneven& u : factors_.uneven) {
      if (u.member / group == piece) {
        more[u.phase] += exp_[u.phase][first + u.member % group] * u.factor;
      }
    }
  }
  double rise = 0;
  for (const std::size_t p : phases_) {
    linear += more[p] / sum_[p] / b_;
    rise += std::log1p(std::max(kLeast, more[p] / sum_[p])) / b_;
  }
  return rise + std::max(0.0, price - linear);  // what is beyond the loads is for bytes
}

/// Cost that an option adds to every rank alike, and for routes that are not in use yet.
double SmoothDescent::charges(const PlacementOption& o) const {
  const bool everywhere = o.group == problem_.ranks;
  double sum = 0;
  for (const std::size_t p : phases_) {
    sum += load_seconds(o.everywhere[p] + (everywhere ? o.pieces * o.load[p] : 0));
  }
  for (std::size_t tier = 0; tier < room_.size(); ++tier) {
    const std::int32_t shared = problem_.tiers[tier].shared_by;
    const std::int64_t all = o.bytes_everywhere[tier] + (everywhere ? o.pieces * o.bytes[tier] : 0);
    const auto need = static_cast<double>(shared * all);
    double over = 0;
    for (std::size_t r = 0; need > least_room_[tier] && r < ranks_; r += index(shared)) {
      const double lacking = need + taken_on_all(tier) - room_[tier][r];
      over += std::min(need, std::max(0.0, lacking));
    }
    sum += over * price_per_byte(tier) / shared;
  }
  return sum;
}

SmoothDescent::Offer SmoothDescent::best_of(std::size_t table, std::size_t first) {
  Offer best{std::numeric_limits<double>::infinity(), {}};
  const auto& options = problem_.tables[table].options;
  for (std::size_t turn = 0; turn < options.size(); ++turn) {
    const std::size_t i = (first + turn) % options.size();
    const PlacementOption& o = options[i];
    if (!choose_.empty() && choose_[table] != static_cast<std::int32_t>(i)) {
      continue;
    }
    ++evaluations_;
    double price = charges(o);
    if (price >= best.price) {
      continue;
    }
    factors_of(o);
    const bool everywhere = o.group == problem_.ranks;
    if (price + least_rise(o) >= best.price) {
      continue;
    }
    if (everywhere) {
      chosen_.assign(1, {0.0, 0});
    } else {
      price_groups(o);
      pick(o);
      order_pieces(o);
    }
    price += rise(o);
    if (price < best.price) {
      best.price = price;
      best.choice.option = static_cast<std::int32_t>(i);
      best.choice.groups.clear();
      for (const auto& [at, g] : chosen_) {
        if (!everywhere) {
          best.choice.groups.push_back(g);
        }
      }
    }
  }
  return best;
}

Femtoseconds SmoothDescent::objective() const {
  Femtoseconds sum = problem_.constant;
  for (std::size_t f = 0; f < route_uses_.size(); ++f) {
    sum += route_uses_[f] > 0 ? problem_.fixed[f] : 0;
  }
  for (const std::size_t p : phases_) {
    sum += even_[p] + *std::max_element(load_[p].begin(), load_[p].end());
  }
  return sum;
}

Placement SmoothDescent::run(const Schedule& schedule, std::uint64_t seed, const Placement& from,
                             const std::function<bool()>& stop) {
  const std::size_t tables = problem_.tables.size();
  std::vector<std::size_t> order = heaviest_first(problem_);
  for (std::size_t t = 0; t < tables; ++t) {
    if (placement_[t].option >= 0) {
      apply(t, placement_[t], -1);
      placement_[t] = {};
    }
    if (!from.empty()) {
      placement_[t] = from[t];
      apply(t, from[t], 1);
    }
  }
  Placement best;
  Femtoseconds least = std::numeric_limits<Femtoseconds>::max();
  byte_price_ = kFirstBytes * scale_;
  for (int sweep = 0; sweep < schedule.sweeps || (best.empty() && sweep < schedule.sweeps + kLate);
       ++sweep) {
    const double way =
        schedule.sweeps > 1 ? std::min(1.0, static_cast<double>(sweep) / (schedule.sweeps - 1)) : 1;
    sharpen(schedule.soft * std::pow(schedule.sharp / schedule.soft, way) / scale_);
    std::size_t turn = 0;
    for (const std::size_t t : order) {
      if (++turn % kRefresh == 0) {
        refresh();
      }
      if (stop && stop()) {
        return best;
      }
      const Choice old = std::move(placement_[t]);
      if (old.option >= 0) {
        apply(t, old, -1);
      }
      Offer offer = best_of(t, index(std::max(0, old.option)));
      placement_[t] = offer.choice.option >= 0 ? std::move(offer.choice) : old;
      apply(t, placement_[t], 1);
    }
    for (int i = 0; i < schedule.exchanges; ++i) {
      exchange(seed);
    }
    const Femtoseconds now = objective();
    if (now < least && fits()) {
      least = now;
      best = placement_;
    }
    byte_price_ *= kMoreBytes;
    for (std::size_t i = tables; i > 1; --i) {
      std::swap(order[i - 1], order[next_split_mix(seed) % i]);
    }
  }
  return best;
}

bool SmoothDescent::fits() const { return planner::fits(problem_, placement_); }

}  // namespace stepcast::planner::internal
