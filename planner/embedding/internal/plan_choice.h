#pragma once
#include <compare>
#include <cstdint>
#include <optional>

#include "planner/embedding/plan_space.h"

namespace stepcast::planner::internal {

/// A table in equal blocks of rows, each on one rank or on one group of consecutive ranks.
struct RowBlocks {
  std::int64_t blocks = 1;
  std::int64_t group = 1;
  auto operator<=>(const RowBlocks&) const = default;
};
/// Those of a plan's table; nullopt where it lies otherwise.
std::optional<RowBlocks> row_blocks_of(const EmbeddingTable& table, const PlanTable& plan);

/// The option of table `t` that a plan's shards describe, and their groups; nullopt where the space
/// has no such placement. Block and striped rows count as the same option: the space has the one
/// that balances better.
std::optional<Choice> choice_of(const Job& job, const PlanSpace& space, std::size_t t,
                                const PlanTable& table);

/// All tables of a plan for the job; nullopt where the space lacks one of its placements.
std::optional<Placement> placement_of(const Job& job, const PlanSpace& space,
                                      const EmbeddingPlan& plan);

}  // namespace stepcast::planner::internal
