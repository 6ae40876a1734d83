#pragma once
#include <cstdint>
#include <vector>

#include "planner/embedding/placement.h"

namespace stepcast::planner::internal {

/// Load of an option averaged over ranks, all phases, and its bytes as a share of all memory.
struct OptionPrice {
  double mean = 0;
  double memory = 0;
  double piece = 0;
};
/// By table and option.
std::vector<std::vector<OptionPrice>> option_prices(const PlacementProblem& problem);

/// The cheapest option of each table whose piece stays under `threshold` seconds; the smallest
/// piece where none does. `memory_price`: seconds for all memory.
std::vector<std::int32_t> cheapest_options(const std::vector<std::vector<OptionPrice>>& prices,
                                           double threshold, double memory_price);

}  // namespace stepcast::planner::internal
