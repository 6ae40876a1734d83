#pragma once
#include <cstdint>

#include "simulator/simulate.h"

namespace stepcast::simulator {

struct IntervalOptions {
  int samples = 100;
  std::uint64_t seed = 1;
};

/// Step time from the model residuals: what 5 %, 50 % and 95 % of samples stay below.
struct StepInterval {
  Seconds p5, median, p95;
};

/// Re-simulates with every cost times exp(log_sigma * (z_model + z_op) / sqrt(2)), z standard
/// normal: half of a residual's variance is common to all ops one model answered for, whose
/// constants are off for all of them alike; the rest is drawn per op template and averages out.
/// Rendezvous, overlap and bubbles are simulated anew in each sample, so an op off the critical
/// path widens nothing. The same seed gives the same interval.
StepInterval step_interval(const ExecutionGraph& graph, const StepCosts& costs,
                           const IntervalOptions& options = {});

}  // namespace stepcast::simulator
