#pragma once
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/placement.h"

namespace stepcast::planner {

/// Memory that embedding tables may use in each tier: of the device's what its libraries' reserve
/// and the dense model leave; of slower tiers the system's capacity, shared as the system says. The
/// first tier is always "hbm". Errors: InputError for a memory of 0.
std::vector<TierCapacity> capacities_of(const Job& job, bool slow_tiers);

/// Memory that the communicators of a plan take of a device beyond what
/// `capacities_of` leaves for them: a search does not see it, the plan's ledger does.
Bytes further_communicators(const Job& job, const EmbeddingPlan& plan);

}  // namespace stepcast::planner
