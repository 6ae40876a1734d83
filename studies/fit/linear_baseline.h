#pragma once
#include <span>
#include <string>

#include "core/graph/program_fwd.h"
#include "core/system.h"

namespace stepcast::studies {

/// FLOPs and bytes of the busiest rank of a step, and how long the step took.
struct StepSample {
  double flops = 0;
  double bytes = 0;  ///< read and written by kernels, plus collectives' buffers
  double seconds = 0;
};
StepSample step_sample(const ExecutionGraph& graph, Seconds measured);

/// The naive predictor that every accuracy table compares with ours: seconds = a + b FLOPs + c
/// bytes, least squares of relative errors, no constant below zero, fitted on the same calibration
/// runs. Form "baseline.linear", constants step, per_flop, per_byte.
FittedModel fit_linear_baseline(std::span<const StepSample> samples, const std::string& source);
Seconds linear_baseline(const FittedModel& model, const StepSample& sample);

}  // namespace stepcast::studies
