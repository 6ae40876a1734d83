#pragma once
#include <limits>

#include "planner/embedding/plan_space.h"

namespace stepcast::planner {

/// Seconds that no plan of a space steps under, simulated: the dense model's part, which no plan
/// changes, and a bound of the objective. `space` has prices that are never above the model's
/// (LineFit::kBelow). Nothing but the space decides the value: no plan that was found, no seed.
/// With `enough` a value of at least that may be less than it could be.
///
///   exchanges wait for compute          dense + sum over phases of the slowest rank
///   ids arrive overlapped               that without arrival
///   rows are exchanged overlapped       the longer of both, and any mean of them:
///       all kernels of a rank           dense + lookups + updates
///       the exchanges, and what they    layers behind the tables + arrival + lookups of whole
///       cannot be overlapped with       tables, which go first + exchanges
///
/// With a weight w for the exchanges the mean is an objective of the same form, so its bound is
/// one of the step; the best of a few weights counts. All-reduces of copies' gradients count with
/// the kernels, or not at all where they are overlapped with them.
///
/// Tested on drawn plans by tests/studies/step_bound_test.cpp.
double least_step(const Job& job, const PlanSpace& space,
                  double enough = std::numeric_limits<double>::infinity());

}  // namespace stepcast::planner
