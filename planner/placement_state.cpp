#include "planner/placement_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"

namespace stepcast::planner {
namespace {

std::size_t index(std::int32_t v) { return static_cast<std::size_t>(v); }

}  // namespace

PlacementState::PlacementState(const PlacementProblem& problem)
    : problem_(problem), placement_(problem.tables.size()), route_uses_(problem.fixed.size(), 0) {
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
    overfull_ += std::count_if(tier.capacity.begin(), tier.capacity.end(),
                               [](std::int64_t c) { return c < 0; });
  }
}

void PlacementState::refresh_blocks(std::int32_t first, std::int32_t last) {
  for (std::size_t b = index(first) / block_; b <= index(last) / block_; ++b) {
    for (std::size_t p = 0; p <= kTogether; ++p) {
      const Ticks* begin = load_[p].data() + b * block_;
      const Ticks* end = load_[p].data() + std::min((b + 1) * block_, load_[p].size());
      block_most_[p][b] = *std::max_element(begin, end);
      if (p == kTogether) {
        block_least_[b] = *std::min_element(begin, end);
      }
    }
  }
}

void PlacementState::add_to_rank(std::int32_t rank, const Load& load, std::int64_t times) {
  const double before = load_seconds(load_[kTogether][index(rank)]);
  for (std::size_t p = 0; p < kPhases; ++p) {
    load_[p][index(rank)] += times * load[p];
    load_[kTogether][index(rank)] += times * load[p];
  }
  const double after = load_seconds(load_[kTogether][index(rank)]);
  squares_ += (after - before) * (after + before);
}

void PlacementState::add_to_all(const Load& load, std::int64_t times) {
  for (std::size_t p = 0; p < kPhases; ++p) {
    on_all_[p] += times * load[p];
    on_all_[kTogether] += times * load[p];
  }
}

void PlacementState::add_bytes(std::size_t tier, std::size_t unit, std::int64_t bytes) {
  const std::int64_t capacity = problem_.tiers[tier].capacity[unit];
  std::int64_t& used = used_[tier][unit];
  overfull_ -= used > capacity ? 1 : 0;
  used += bytes;
  if (bytes < 0 && problem_.tiers[tier].shared_by == 1) {
    std::int64_t& free = block_free_[tier][unit / block_];
    free = std::max(free, capacity - used);
  }
  overfull_ += used > capacity ? 1 : 0;
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
    for (std::size_t r = 0; r < o.skew.size(); ++r) {
      add_to_rank(static_cast<std::int32_t>(r), o.skew[r], sign * o.pieces);
    }
    if (!o.skew.empty()) {
      refresh_blocks(0, problem_.ranks - 1);
    }
  }
  for (const std::int32_t g : choice.groups) {
    const std::int32_t first = g * o.group;
    for (std::int32_t r = first; r < first + o.group; ++r) {
      Load load = o.load;
      if (!o.skew.empty()) {
        for (std::size_t p = 0; p < kPhases; ++p) {
          load[p] += o.skew[index(r - first)][p];
        }
      }
      add_to_rank(r, load, sign);
      auto& tables = tables_on_[index(r)];
      if (sign > 0) {
        tables.push_back(static_cast<std::int32_t>(table));
      } else {
        const auto it = std::find(tables.rbegin(), tables.rend(), static_cast<std::int32_t>(table));
        *it = tables.back();
        tables.pop_back();
      }
    }
    refresh_blocks(first, first + o.group - 1);
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

Ticks PlacementState::most(std::size_t phase) const {
  return on_all_[phase] + *std::max_element(block_most_[phase].begin(), block_most_[phase].end());
}

std::int32_t PlacementState::busiest(std::size_t phase) const {
  const auto& blocks = block_most_[phase];
  const auto block =
      static_cast<std::size_t>(std::max_element(blocks.begin(), blocks.end()) - blocks.begin());
  const auto first = load_[phase].begin() + static_cast<std::ptrdiff_t>(block * block_);
  const auto last = load_[phase].begin() + static_cast<std::ptrdiff_t>(
                                               std::min((block + 1) * block_, load_[phase].size()));
  return static_cast<std::int32_t>(std::max_element(first, last) - load_[phase].begin());
}

Ticks PlacementState::objective() const { return problem_.constant + fixed_ + most(kTogether); }

Ticks PlacementState::phased() const {
  Ticks total = problem_.constant + fixed_;
  for (std::size_t p = 0; p < kPhases; ++p) {
    total += most(p);
  }
  return total;
}

Ticks PlacementState::group_total(std::int32_t group, std::int32_t size) const {
  const auto first = load_[kTogether].begin() + static_cast<std::ptrdiff_t>(group) * size;
  return *std::max_element(first, first + size);
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
  Ticks best_load = 0;
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

std::vector<std::int32_t> PlacementState::least_loaded(const PlacementOption& o) const {
  if (o.group == problem_.ranks) {
    return {};
  }
  const std::int32_t groups = problem_.ranks / o.group;
  std::vector<std::int32_t> chosen;
  for (std::int32_t piece = 0; piece < o.pieces; ++piece) {
    if (o.group == 1) {
      const std::int32_t rank = least_loaded_rank(o, chosen, false);
      chosen.push_back(rank >= 0 ? rank : least_loaded_rank(o, chosen, true));
      continue;
    }
    std::int32_t best = -1;
    bool best_room = false;
    Ticks best_load = 0;
    for (std::int32_t g = 0; g < groups; ++g) {
      const Ticks load = group_total(g, o.group);
      if (best >= 0 && best_room && load >= best_load) {
        continue;
      }
      if (std::find(chosen.begin(), chosen.end(), g) != chosen.end()) {
        continue;
      }
      const bool room = has_room(o, g);
      if (best < 0 || (room && !best_room) || (room == best_room && load < best_load)) {
        best = g;
        best_room = room;
        best_load = load;
      }
    }
    STEPCAST_CHECK(best >= 0, "{} pieces on {} groups", o.pieces, groups);
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace stepcast::planner
