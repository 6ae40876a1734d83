#pragma once
#include <cstddef>
#include <vector>

#include "studies/plan/plan_parallel.h"

namespace stepcast::studies::internal {

/// Without those that another one on no more devices equals in time and memory, or beats.
std::vector<planner::ParallelCandidate> without_dominated(
    const std::vector<planner::ParallelCandidate>& all);

/// One report of two searches that differ in the order of ranks alone: the best `top` plans of
/// both, each kind once; a bound that holds for both.
ParallelPlanReport joined(ParallelPlanReport a, ParallelPlanReport b, std::size_t top);

}  // namespace stepcast::studies::internal
