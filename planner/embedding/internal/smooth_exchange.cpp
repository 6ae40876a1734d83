#include <algorithm>

#include "core/numbers.h"
#include "core/split_mix.h"
#include "planner/embedding/internal/smooth_descent.h"

// Pieces that two ranks exchange, or one gives to the other, where that lowers the smooth
// objective.

namespace stepcast::planner::internal {
namespace {

constexpr double kWorthwhile = 1e-6;   // of the scale: gains below are left alone
constexpr std::size_t kPartners = 64;  // ranks asked for an exchange
constexpr int kExchanges = 4;          // of a rank in a sweep

}  // namespace

void SmoothDescent::gather(std::size_t rank, Held& held) const {
  held.size = 0;
  for (const std::int32_t t : tables_on_[rank]) {
    if (held.size == kMostPieces) {
      break;
    }
    held.tables[held.size] = t;
    const double* factors = factors_on_.data() + index(t) * 2 * local_.size();
    std::copy(factors, factors + 2 * local_.size(), held.factors[held.size++].begin());
  }
}

bool SmoothDescent::may_exchange(std::int32_t give, std::size_t from, std::int32_t take,
                                 std::size_t partner) const {
  const auto holds = [&](std::int32_t t, std::size_t r) {
    const auto& here = placement_[index(t)].groups;
    return std::find(here.begin(), here.end(), static_cast<std::int32_t>(r)) != here.end();
  };
  if ((give >= 0 && holds(give, partner)) || (take >= 0 && holds(take, from))) {
    return false;
  }
  const auto bytes = [&](std::int32_t t, std::size_t tier) {
    return t < 0
               ? std::int64_t{0}
               : problem_.tables[index(t)].options[index(placement_[index(t)].option)].bytes[tier];
  };
  for (std::size_t tier = 0; tier < room_.size(); ++tier) {
    const auto moved = static_cast<double>(bytes(give, tier) - bytes(take, tier));
    const double all = taken_on_all(tier);
    if ((moved > 0 && room_[tier][partner] - all < moved) ||
        (moved < 0 && room_[tier][from] - all < -moved)) {
      return false;
    }
  }
  return true;
}

void SmoothDescent::move(std::int32_t table, std::size_t from, std::size_t to) {
  if (table >= 0) {
    Choice c = std::move(placement_[index(table)]);
    apply(index(table), c, -1);
    std::replace(c.groups.begin(), c.groups.end(), static_cast<std::int32_t>(from),
                 static_cast<std::int32_t>(to));
    apply(index(table), c, 1);
    placement_[index(table)] = std::move(c);
  }
}

bool SmoothDescent::exchange_from(std::size_t rank, std::size_t first) {
  const std::size_t phases = local_.size();
  std::array<double, kPhases> own{};
  double all = 0;
  for (std::size_t i = 0; i < phases; ++i) {
    own[i] = exp_[local_[i]][rank] / sum_[local_[i]];
    all += own[i];
  }
  double best = -kWorthwhile * scale_ * b_;
  if (all < -best) {
    return false;
  }
  gather(rank, mine_);
  std::size_t best_partner = ranks_;
  std::int32_t best_give = -1;
  std::int32_t best_take = -1;
  const std::size_t asked = std::min(ranks_ - 1, kPartners);
  for (std::size_t i = 0; i < asked; ++i) {
    const std::size_t partner = (rank + 1 + (first + i) % (ranks_ - 1)) % ranks_;
    std::array<double, kPhases> other{};
    double still = all;
    for (std::size_t k = 0; k < phases; ++k) {
      other[k] = exp_[local_[k]][partner] / sum_[local_[k]];
      still += other[k];
    }
    if (still < -best) {
      continue;
    }
    ++evaluations_;
    gather(partner, theirs_);
    for (std::size_t g = 0; g < mine_.size; ++g) {
      // Rest of the pair's terms once `give` has moved; each `take` then scales them.
      std::array<double, kPhases> here{};
      std::array<double, kPhases> there{};
      double change = -still;
      for (std::size_t k = 0; k < phases; ++k) {
        here[k] = own[k] * mine_.factors[g][phases + k];
        there[k] = other[k] * mine_.factors[g][k];
        change += here[k] + there[k];
      }
      const std::int32_t give = mine_.tables[g];
      if (change < best && may_exchange(give, rank, -1, partner)) {
        best = change;
        best_partner = partner;
        best_give = give;
        best_take = -1;
      }
      for (std::size_t t = 0; t < theirs_.size; ++t) {
        change = -still;
        for (std::size_t k = 0; k < phases; ++k) {
          change += here[k] * theirs_.factors[t][k] + there[k] * theirs_.factors[t][phases + k];
        }
        if (change < best && may_exchange(give, rank, theirs_.tables[t], partner)) {
          best = change;
          best_partner = partner;
          best_give = give;
          best_take = theirs_.tables[t];
        }
      }
    }
  }
  if (best_partner == ranks_) {
    return false;
  }
  move(best_give, rank, best_partner);
  move(best_take, best_partner, rank);
  return true;
}

void SmoothDescent::exchange(std::uint64_t& seed) {
  local_.clear();
  for (const std::size_t p : phases_) {
    const bool used = std::any_of(placement_.begin(), placement_.end(), [&](const Choice& c) {
      const auto& options =
          problem_.tables[static_cast<std::size_t>(&c - placement_.data())].options;
      const PlacementOption& o = options[index(c.option)];
      return o.group == 1 && o.load[p] != 0;
    });
    if (used) {
      local_.push_back(p);
    }
  }
  factors_on_.resize(placement_.size() * 2 * local_.size());
  double* to = factors_on_.data();
  for (std::size_t t = 0; t < placement_.size(); ++t) {
    const PlacementOption& o = problem_.tables[t].options[index(placement_[t].option)];
    for (std::size_t k = 0; k < local_.size(); ++k) {
      to[k] = o.group == 1 ? exp_of(b_ * load_seconds(o.load[local_[k]])) : 1;
      to[local_.size() + k] = 1 / to[k];
    }
    to += 2 * local_.size();
  }
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::size_t first = next_split_mix(seed) % ranks_;
    for (int i = 0; i < kExchanges && exchange_from(r, first); ++i) {
    }
  }
}

}  // namespace stepcast::planner::internal
