#pragma once
#include "planner/plan_space.h"

namespace stepcast::planner {

/// Seconds that no plan of a space steps under, simulated: the dense model's part, which no plan
/// changes, and a bound of the objective. `space` has prices that are never above the model's
/// (LineFit::kBelow); `known` is one of its placements, the better the closer the bound, or null.
///
///   exchanges wait for compute          dense + sum over phases of the slowest rank
///   ids arrive overlapped               the longer of that without arrival, and of all exchanges
///   rows are exchanged overlapped       half of dense + mean load of a rank, at least dense
///
/// The last is weak: of two things that overlap the longer takes at least half their sum.
/// Tested on drawn plans by tests/studies/step_bound_test.cpp.
double least_step(const Job& job, const PlanSpace& space, const Placement* known);

}  // namespace stepcast::planner
