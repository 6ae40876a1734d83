#pragma once
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/route_prices.h"
#include "planner/embedding/plan_space.h"

namespace stepcast::planner::internal {

/// Options of a table in slower memory: whole on one rank or row-wise over all, with caches in
/// device memory of 0, 5, 20 and 50 % of its rows. `tiers`: the first is the device's own.
std::vector<std::pair<PlacementOption, OptionMeaning>> slow_tier_options(
    const Job& job, std::size_t table, const EmbeddingPrices& prices, const RoutePrices& routes,
    std::optional<Split> row_split, const std::vector<TierCapacity>& tiers);

}  // namespace stepcast::planner::internal
