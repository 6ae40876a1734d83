#pragma once
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/route_prices.h"
#include "planner/embedding/plan_space.h"

namespace stepcast::planner::internal {

/// Options that go below the table: rows by popularity at several replication levels
/// (`row_tiers`), and tables in slower tiers with a cache in device memory (`slow_tiers`). All lie
/// on all ranks, or on one.
std::vector<std::pair<PlacementOption, OptionMeaning>> tier_options(
    const Job& job, std::size_t table, const EmbeddingPrices& prices, const RoutePrices& routes,
    const RoutePrices& choice, const PlanSpaceOptions& options,
    const std::vector<TierCapacity>& tiers);

/// The shards of a table under a row-tiered option.
void add_row_tiers(const Job& job, const EmbeddingTable& table, const OptionMeaning& meaning,
                   PlanTable& to);

}  // namespace stepcast::planner::internal
