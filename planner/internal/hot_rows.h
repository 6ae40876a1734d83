#pragma once
#include <array>
#include <optional>
#include <span>

#include "core/workload.h"
#include "planner/placement.h"
#include "workloads/row_shares.h"

namespace stepcast::planner::internal {

/// A table split by rows over the members of a group, and what falls to each of them.
struct HotRows {
  Split split = Split::kBlock;  ///< of blocks and stripes the one whose busiest member has least
  workloads::RowShares shares;
};
/// `hottest`: hottest_rows of the table's law. `split`: take this one.
HotRows hot_rows(const EmbeddingTable& table, std::span<const workloads::HotRow> hottest,
                 std::int64_t members, std::optional<Split> split = std::nullopt);

/// Makes of a load that was priced for an even share of the lookups the loads of members with these
/// shares; phases that do not grow with a member's lookups (pooled exchanges) stay as they are.
/// Shares within 0.1 % of the least count as equal: their mean is the option's load.
void spread_by_shares(PlacementOption& option, std::span<const double> shares,
                      const std::array<bool, kPhases>& grows);

}  // namespace stepcast::planner::internal
