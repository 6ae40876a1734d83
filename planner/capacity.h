#pragma once
#include <vector>

#include "core/job.h"
#include "planner/placement.h"

namespace stepcast::planner {

/// What embedding tables may use of each tier: of the device's memory what its libraries' reserve
/// and the dense model leave; of slower tiers the system's capacity, shared as the system says. The
/// first tier is always "hbm". Errors: InputError for a memory of 0.
std::vector<TierCapacity> capacities_of(const Job& job, bool slow_tiers);

}  // namespace stepcast::planner
