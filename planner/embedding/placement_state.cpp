#include "planner/embedding/placement_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/numbers.h"

namespace stepcast::planner {
namespace {

constexpr std::int32_t kAllLookedAt = 256;  // ranks: with more, those of least load only

}  // namespace

PlacementState::PlacementState(const PlacementProblem& problem)
    : problem_(problem),
      phases_(problem.phases()),
      measures_(phases_),
      placement_(problem.tables.size()),
      route_uses_(problem.fixed.size(), 0) {
  if (phases_.size() > 1) {
    measures_.push_back(kTogether);
  }
  STEPCAST_CHECK(!problem.arrival_overlaps, "a state of overlapped arrival; relax it first");
  const std::size_t ranks = index(problem.ranks);
  block_ = std::max<std::size_t>(8, static_cast<std::size_t>(std::sqrt(problem.ranks)));
  for (std::size_t p = 0; p <= kTogether; ++p) {
    load_[p].assign(ranks, 0);
    block_most_[p].assign((ranks + block_ - 1) / block_, 0);
  }
  tables_on_.resize(ranks);
  block_least_.assign(block_most_[0].size(), 0);
  for (const TierCapacity& tier : problem.tiers) {
    used_.emplace_back(tier.capacity.size(), 0);
    block_free_.emplace_back(block_least_.size(), std::numeric_limits<std::int64_t>::max());
    for (const std::int64_t c : tier.capacity) {
      overfull_ += c < 0 ? 1 : 0;
      excess_ += std::max<std::int64_t>(0, -c);
    }
  }
}

PlacementState::PlacementState(const PlacementProblem& problem, const Placement& placement)
    : PlacementState(problem) {
  for (std::size_t t = 0; t < placement.size(); ++t) {
    add(t, placement[t]);
  }
}

void PlacementState::add_to_measure(std::size_t measure, std::size_t rank, Femtoseconds load) {
  auto& all = load_[measure];
  const Femtoseconds before = all[rank];
  const Femtoseconds after = all[rank] += load;
  const std::size_t block = rank / block_;
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(block * block_);
  const auto end =
      all.begin() + static_cast<std::ptrdiff_t>(std::min((block + 1) * block_, all.size()));
  Femtoseconds& most = block_most_[measure][block];
  most = after >= most ? after : before == most ? *std::max_element(begin, end) : most;
  if (measure == kTogether) {
    Femtoseconds& least = block_least_[block];
    least = after <= least ? after : before == least ? *std::min_element(begin, end) : least;
  }
}

void PlacementState::add_to_rank(std::int32_t rank, const Load& load, std::int64_t times) {
  Femtoseconds sum = 0;
  for (const std::size_t p : phases_) {
    if (load[p] != 0) {
      add_to_measure(p, index(rank), times * load[p]);
      sum += load[p];
    }
  }
  add_to_measure(kTogether, index(rank), times * sum);
}

void PlacementState::add_to_all(const Load& load, std::int64_t times) {
  for (const std::size_t p : phases_) {
    on_all_[p] += times * load[p];
    on_all_[kTogether] += times * load[p];
  }
}

void PlacementState::add_bytes(std::size_t tier, std::size_t unit, std::int64_t bytes) {
  const std::int64_t capacity = problem_.tiers[tier].capacity[unit];
  std::int64_t& used = used_[tier][unit];
  overfull_ -= used > capacity ? 1 : 0;
  excess_ -= std::max<std::int64_t>(0, used - capacity);
  used += bytes;
  if (bytes < 0 && problem_.tiers[tier].shared_by == 1) {
    std::int64_t& free = block_free_[tier][unit / block_];
    free = std::max(free, capacity - used);
  }
  overfull_ += used > capacity ? 1 : 0;
  excess_ += std::max<std::int64_t>(0, used - capacity);
}

void PlacementState::apply(std::size_t table, const Choice& choice, std::int64_t sign) {
  const PlacementOption& o = option(table, choice);
  evaluations_ += sign > 0 ? 1 : 0;
  add_to_all(o.everywhere, sign);
  if (problem_.moves) {
    moved_ += sign * problem_.moves->bytes(table, choice);
  }
  const bool everywhere = o.group == problem_.ranks;
  if (everywhere) {
    add_to_all(o.load, sign * o.pieces);
    for (const PlacementOption::Skew& s : o.skew) {
      add_to_rank(s.position, o.extra(s), sign);
    }
  }
  auto skewed = o.skew.begin();
  std::int32_t position = 0;
  for (const std::int32_t g : choice.groups) {
    const std::int32_t first = g * o.group;
    for (std::int32_t r = first; r < first + o.group; ++r, ++position) {
      if (skewed != o.skew.end() && skewed->position == position) {
        Load load = o.extra(*skewed++);
        for (std::size_t p = 0; p < kPhases; ++p) {
          load[p] += o.load[p];
        }
        add_to_rank(r, load, sign);
      } else {
        add_to_rank(r, o.load, sign);
      }
      auto& tables = tables_on_[index(r)];
      if (sign > 0) {
        tables.push_back(static_cast<std::int32_t>(table));
      } else {
        const auto it = std::find(tables.rbegin(), tables.rend(), static_cast<std::int32_t>(table));
        *it = tables.back();
        tables.pop_back();
      }
    }
  }
  for (std::size_t tier = 0; tier < problem_.tiers.size(); ++tier) {
    const std::int32_t shared = problem_.tiers[tier].shared_by;
    const std::int64_t all = o.bytes_everywhere[tier] + (everywhere ? o.pieces * o.bytes[tier] : 0);
    for (std::size_t u = 0; all != 0 && u < used_[tier].size(); ++u) {
      const std::int64_t sharers =
          std::min<std::int64_t>(shared, problem_.ranks - static_cast<std::int64_t>(u) * shared);
      add_bytes(tier, u, sign * all * sharers);
    }
    for (const std::int32_t g : choice.groups) {
      for (std::int32_t r = g * o.group; o.bytes[tier] != 0 && r < (g + 1) * o.group; ++r) {
        add_bytes(tier, index(r / shared), sign * o.bytes[tier]);
      }
    }
  }
  for (std::size_t f = 0; f < problem_.fixed.size(); ++f) {
    if ((o.routes >> f & 1U) != 0) {
      const std::int32_t before = route_uses_[f];
      route_uses_[f] += static_cast<std::int32_t>(sign);
      fixed_ += before == 0 ? problem_.fixed[f] : route_uses_[f] == 0 ? -problem_.fixed[f] : 0;
    }
  }
}

void PlacementState::add(std::size_t table, Choice choice) {
  STEPCAST_CHECK(placement_[table].option < 0, "table {} is placed already", table);
  apply(table, choice, 1);
  placement_[table] = std::move(choice);
}

void PlacementState::remove(std::size_t table) {
  if (placement_[table].option >= 0) {
    apply(table, placement_[table], -1);
    placement_[table] = {};
  }
}

Femtoseconds PlacementState::most(std::size_t measure) const {
  const auto& blocks = block_most_[measure];
  return on_all_[measure] + *std::max_element(blocks.begin(), blocks.end());
}

std::int32_t PlacementState::busiest(std::size_t measure) const {
  const auto& blocks = block_most_[measure];
  const auto block =
      static_cast<std::size_t>(std::max_element(blocks.begin(), blocks.end()) - blocks.begin());
  const auto& all = load_[measure];
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(block * block_);
  const auto last =
      all.begin() + static_cast<std::ptrdiff_t>(std::min((block + 1) * block_, all.size()));
  return static_cast<std::int32_t>(std::max_element(first, last) - all.begin());
}

Femtoseconds PlacementState::objective() const {
  Femtoseconds sum = problem_.constant + fixed_;
  for (const std::size_t p : phases_) {
    sum += most(p);
  }
  return sum;
}

Femtoseconds PlacementState::with(const PlacementOption& o,
                                  const std::vector<std::int32_t>& groups) {
  ++evaluations_;
  Femtoseconds sum = problem_.constant + fixed_;
  for (std::size_t f = 0; f < problem_.fixed.size(); ++f) {
    sum += (o.routes >> f & 1U) != 0 && route_uses_[f] == 0 ? problem_.fixed[f] : 0;
  }
  const bool everywhere = o.group == problem_.ranks;
  for (const std::size_t p : phases_) {
    Femtoseconds top = most(p) - on_all_[p];
    const auto add = [&](std::size_t rank, Femtoseconds load) {
      top = std::max(top, load_[p][rank] + load);
    };
    for (const PlacementOption::Skew& s : o.skew) {
      if (everywhere) {
        add(index(s.position), o.extra(s, p));
      }
    }
    auto s = o.skew.begin();
    std::int32_t position = 0;
    for (const std::int32_t g : groups) {
      for (std::int32_t i = 0; i < o.group; ++i, ++position) {
        const bool here = s != o.skew.end() && s->position == position;
        add(index(g * o.group + i), o.load[p] + (here ? o.extra(*s++, p) : 0));
      }
    }
    sum += on_all_[p] + o.everywhere[p] + (everywhere ? o.pieces * o.load[p] : 0) + top;
  }
  return sum;
}

bool PlacementState::has_room(const PlacementOption& o, std::int32_t group) const {
  for (std::size_t tier = 0; tier < problem_.tiers.size(); ++tier) {
    if (o.bytes[tier] == 0) {
      continue;
    }
    const std::int32_t shared = problem_.tiers[tier].shared_by;
    const std::int32_t first = group * o.group;
    if (shared == 1) {
      const std::int64_t* used = used_[tier].data() + first;
      const std::int64_t* capacity = problem_.tiers[tier].capacity.data() + first;
      for (std::int32_t i = 0; i < o.group; ++i) {
        if (used[i] + o.bytes[tier] > capacity[i]) {
          return false;
        }
      }
      continue;
    }
    for (std::int32_t r = first; r < first + o.group; r += shared) {
      const std::size_t unit = index(r / shared);
      const std::int64_t members = std::min(shared, o.group);
      if (used_[tier][unit] + members * o.bytes[tier] > problem_.tiers[tier].capacity[unit]) {
        return false;
      }
    }
  }
  return true;
}

bool PlacementState::block_has_room(std::size_t block, const PlacementOption& o) const {
  for (std::size_t tier = 0; tier < problem_.tiers.size(); ++tier) {
    if (o.bytes[tier] == 0 || problem_.tiers[tier].shared_by > 1) {
      continue;
    }
    if (block_free_[tier][block] < o.bytes[tier]) {
      return false;
    }
    std::int64_t free = std::numeric_limits<std::int64_t>::min();
    const std::size_t end = std::min((block + 1) * block_, used_[tier].size());
    for (std::size_t r = block * block_; r < end; ++r) {
      free = std::max(free, problem_.tiers[tier].capacity[r] - used_[tier][r]);
    }
    block_free_[tier][block] = free;
    if (free < o.bytes[tier]) {
      return false;
    }
  }
  return true;
}

std::int32_t PlacementState::least_loaded_rank(const PlacementOption& o,
                                               const std::vector<std::int32_t>& but,
                                               bool anyway) const {
  std::int32_t best = -1;
  Femtoseconds best_load = 0;
  for (std::size_t b = 0; b < block_least_.size(); ++b) {
    if ((best >= 0 && block_least_[b] >= best_load) || (!anyway && !block_has_room(b, o))) {
      continue;
    }
    const std::size_t end = std::min((b + 1) * block_, load_[kTogether].size());
    for (std::size_t r = b * block_; r < end; ++r) {
      const auto rank = static_cast<std::int32_t>(r);
      if ((best < 0 || load_[kTogether][r] < best_load) &&
          std::find(but.begin(), but.end(), rank) == but.end() && (anyway || has_room(o, rank))) {
        best = rank;
        best_load = load_[kTogether][r];
      }
    }
  }
  return best;
}

std::vector<std::int32_t> PlacementState::cheapest_groups(const PlacementOption& o) const {
  struct Loaded {
    const Femtoseconds* ranks = nullptr;
    Femtoseconds room = 0;  ///< below the slowest rank
    double load = 0;
  };
  std::array<Loaded, kPhases> loaded;
  std::size_t phases = 0;
  for (const std::size_t p : phases_) {
    if (o.load[p] != 0) {
      loaded[phases++] = {load_[p].data(), most(p) - on_all_[p] - o.load[p],
                          static_cast<double>(o.load[p])};
    }
  }
  // A piece on one group does not change what another costs on the next, so the order is that of
  // the groups alone.
  std::vector<std::tuple<bool, Femtoseconds, double, std::int32_t>> order;
  order.reserve(index(problem_.ranks / o.group));
  for (std::int32_t g = 0; g < problem_.ranks / o.group; ++g) {
    const auto first = index(g * o.group);
    Femtoseconds rise = 0;
    double crowd = 0;
    for (std::size_t i = 0; i < phases; ++i) {
      const Femtoseconds* at = loaded[i].ranks + first;
      const Femtoseconds here = o.group == 1 ? *at : *std::max_element(at, at + o.group);
      rise += std::max<Femtoseconds>(0, here - loaded[i].room);
      crowd += static_cast<double>(here) * loaded[i].load;
    }
    order.emplace_back(!has_room(o, g), rise, crowd, g);
  }
  const auto taken = order.begin() + o.pieces;
  std::partial_sort(order.begin(), taken, order.end());
  std::vector<std::int32_t> chosen;
  std::transform(order.begin(), taken, std::back_inserter(chosen),
                 [](const auto& at) { return std::get<std::int32_t>(at); });
  return o.heaviest_first(std::move(chosen));
}

std::vector<std::int32_t> PlacementState::least_loaded(const PlacementOption& o) const {
  if (o.group == problem_.ranks) {
    return {};
  }
  STEPCAST_CHECK(o.pieces <= problem_.ranks / o.group, "{} pieces on {} groups", o.pieces,
                 problem_.ranks / o.group);
  if (o.group > 1 || (phases_.size() > 1 && problem_.ranks <= kAllLookedAt)) {
    return cheapest_groups(o);
  }
  std::vector<std::int32_t> chosen;
  chosen.reserve(index(o.pieces));
  for (std::int32_t piece = 0; piece < o.pieces; ++piece) {
    const std::int32_t rank = least_loaded_rank(o, chosen, false);
    chosen.push_back(rank >= 0 ? rank : least_loaded_rank(o, chosen, true));
  }
  return o.heaviest_first(std::move(chosen));
}

}  // namespace stepcast::planner
