#pragma once
#include <cstdint>
#include <vector>

#include "core/job/job.h"
#include "models/fit/interference.h"
#include "studies/run/runtime_cases.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// Slowdown of compute and of transfers while they overlap, op by op.
struct OverlapRows {
  std::vector<models::MeasuredOverlap> compute;   ///< overlapped: with a transfer in flight
  std::vector<models::MeasuredOverlap> transfer;  ///< overlapped: while the rank computes
  std::uint64_t dropped = 0;                      ///< records that the recorders lost
};

/// A random small job for `ranks` whose gradients can travel under its backward; transformers and
/// DLRMs in turn. Matrices dominate, so that what overlaps is compute and transfer, not host time.
Job draw_overlap_case(std::int64_t number, const System& system, std::int64_t ranks, Draw& draw);

/// Compares the same job recorded with transfers overlapped with compute and with one
/// after the other: ops are joined by rank, name, kind and phase, each by the medians over its
/// executions. Ops shorter than 20 us are left out: they show the clock.
void add_overlap(OverlapRows& rows, const traces::GraphRun& alone,
                 const traces::GraphRun& overlapped);

/// "slowdown" (models/fit/interference.h) with the constants `compute` and `transfer`: the factor
/// by which each takes longer while the other runs. Simulations use `compute` alone: applied to
/// whole collectives, `transfer` made predictions worse (docs/accuracy/steps.md). Error and
/// residuals are those of compute. Empty where too few ops overlapped.
FittedModels fit_interference(const OverlapRows& rows, const models::FitOptions& options);

}  // namespace stepcast::studies
