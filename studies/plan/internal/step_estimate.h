#pragma once
#include <optional>

#include "core/job/job.h"
#include "models/cost_model.h"

namespace stepcast::studies::internal {

/// How far an estimate may lie above the simulated step (tests/studies/step_estimate_test.cpp).
constexpr double kEstimateError = 0.003;

/// Seconds of a step of many micro-batches, from simulations of two rounds and of three:
///
///   t(m) = t(3 d) + (m - 3 d) (t(3 d) - t(2 d)) / d
///
/// A round is d micro-batches, after which the schedule of the pipeline repeats itself: a multiple
/// of its stages, at least four. A path through the schedule that repeats more slowly but begins
/// later makes the step longer than that, none makes it shorter.
/// Nothing where that saves less than half of the simulation, and where ranks drift apart over a
/// step (CostModel::straggler).
std::optional<double> estimated_step(const Job& job, const models::CostModel& model);

}  // namespace stepcast::studies::internal
