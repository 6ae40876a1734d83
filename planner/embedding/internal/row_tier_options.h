#pragma once
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/route_prices.h"
#include "planner/embedding/plan_space.h"

namespace stepcast::planner::internal {

/// Options that split a table's rows by popularity over several replication levels
/// (`options.row_tiers`), and the levels that a plan in use has. All are on all ranks. `choice`
/// prices what decides where rows are cut.
std::vector<std::pair<PlacementOption, OptionMeaning>> row_tier_options(
    const Job& job, std::size_t table, const EmbeddingPrices& prices, const RoutePrices& routes,
    const RoutePrices& choice, const PlanSpaceOptions& options);

/// The shards of a table under a row-tiered option.
void add_row_tiers(const Job& job, const EmbeddingTable& table, const OptionMeaning& meaning,
                   PlanTable& to);

}  // namespace stepcast::planner::internal
