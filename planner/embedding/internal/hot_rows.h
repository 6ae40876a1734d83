#pragma once
#include <array>
#include <optional>
#include <span>
#include <vector>

#include "core/job/workload.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/placement.h"
#include "workloads/embedding_plan/row_shares.h"

namespace stepcast::planner::internal {

/// Lookups that fall to each of some members, by shares. Shares within 0.1 % of the least
/// count as equal: their mean stands for them.
struct Spread {
  double base = 1;              ///< that mean
  double members = 1;           ///< an even share is one of so many
  PlacementOption::Skews skew;  ///< members with more: times an even share, beyond the mean
};
Spread spread_of(std::span<const double> shares);

/// A table split by rows over the members of one group, or first in equal blocks of rows over
/// several groups, and what falls to each member, block by block.
struct HotRows {
  Split split = Split::kBlock;  ///< of blocks and stripes the one whose busiest member has least
  Spread spread;
  double most = 1;  ///< share of the busiest member
};
/// `hottest`: hottest_rows of the table's law. `split`: take this one.
HotRows hot_rows(const EmbeddingTable& table, std::span<const workloads::HotRow> hottest,
                 std::int64_t members, std::optional<Split> split = std::nullopt,
                 std::int64_t blocks = 1);

/// First row of a block: rows of equal blocks, cut down to whole ones.
inline std::int64_t first_row_of(const EmbeddingTable& table, std::int64_t block,
                                 std::int64_t blocks) {
  return table.rows * block / blocks;
}

/// Makes of a load that was priced for an even share of the lookups the loads of members with
/// theirs; phases that do not grow with a member's lookups (pooled exchanges) stay as they are. In
/// a bound kernels count as those of the members with least: bags and distinct rows do not grow.
void spread_load(PlacementOption& option, const Spread& spread,
                 const std::array<bool, kPhases>& grows, LineFit fit);

}  // namespace stepcast::planner::internal
