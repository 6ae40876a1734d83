#pragma once
#include <optional>

#include "planner/plan_space.h"

namespace stepcast::planner::internal {

/// The option of table `t` that a plan's shards describe, and their groups; nullopt where the space
/// has no such placement. Block and striped rows count as the same option: the space has the one
/// that balances better.
std::optional<Choice> choice_of(const Job& job, const PlanSpace& space, std::size_t t,
                                const PlanTable& table);

}  // namespace stepcast::planner::internal
