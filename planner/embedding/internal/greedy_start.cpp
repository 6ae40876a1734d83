#include "planner/embedding/internal/greedy_start.h"

#include <algorithm>
#include <numeric>

#include "planner/embedding/placement_state.h"
#include "planner/embedding/search.h"

namespace stepcast::planner {
namespace internal {

std::vector<std::vector<OptionPrice>> option_prices(const PlacementProblem& problem) {
  std::vector<double> capacity;
  for (const TierCapacity& tier : problem.tiers) {
    capacity.push_back(std::accumulate(tier.capacity.begin(), tier.capacity.end(), 1.0));
  }
  std::vector<std::vector<OptionPrice>> prices;
  for (const PlacementTable& table : problem.tables) {
    auto& row = prices.emplace_back();
    for (const PlacementOption& o : table.options) {
      OptionPrice p;
      const double share = static_cast<double>(o.pieces) * o.group / problem.ranks;
      const Load extras = o.sum_of_extras();
      for (std::size_t phase = 0; phase < kPhases; ++phase) {
        p.mean += share * load_seconds(o.load[phase]) +
                  load_seconds(extras[phase]) / problem.ranks + load_seconds(o.everywhere[phase]);
      }
      for (std::size_t t = 0; t < problem.tiers.size(); ++t) {
        p.memory = std::max(p.memory, problem.ranks *
                                          (share * static_cast<double>(o.bytes[t]) +
                                           static_cast<double>(o.bytes_everywhere[t])) /
                                          capacity[t]);
      }
      p.piece = load_seconds(o.piece_total());
      row.push_back(p);
    }
  }
  return prices;
}

std::vector<std::int32_t> cheapest_options(const std::vector<std::vector<OptionPrice>>& prices,
                                           double threshold, double memory_price) {
  std::vector<std::int32_t> choose;
  for (const auto& row : prices) {
    std::size_t best = 0;
    for (std::size_t o = 1; o < row.size(); ++o) {
      const bool under = row[o].piece <= threshold;
      const bool best_under = row[best].piece <= threshold;
      const double cost = row[o].mean + memory_price * row[o].memory;
      const double best_cost = row[best].mean + memory_price * row[best].memory;
      if (under != best_under ? under : under ? cost < best_cost : row[o].piece < row[best].piece) {
        best = o;
      }
    }
    choose.push_back(static_cast<std::int32_t>(best));
  }
  return choose;
}

}  // namespace internal

bool place_greedily(PlacementState& state, const std::vector<std::int32_t>& choose) {
  const PlacementProblem& problem = state.problem();
  std::vector<std::size_t> order(problem.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto option = [&](std::size_t t) -> const PlacementOption& {
    return problem.tables[t].options[static_cast<std::size_t>(choose[t])];
  };
  // Tables on all ranks come first: they take room everywhere.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool all_a = option(a).group == problem.ranks;
    const bool all_b = option(b).group == problem.ranks;
    return all_a != all_b ? all_a : option(a).piece_total() > option(b).piece_total();
  });
  for (const std::size_t t : order) {
    state.add(t, {choose[t], state.least_loaded(option(t))});
  }
  return state.fits();
}

}  // namespace stepcast::planner
