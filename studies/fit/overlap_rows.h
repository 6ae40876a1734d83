#pragma once
#include <cstdint>
#include <vector>

#include "core/job/job.h"
#include "models/fit/interference.h"
#include "studies/run/runtime_cases.h"
#include "traces/trace.h"

namespace stepcast::studies {

/// Slowdown of compute while transfers are in flight, op by op.
struct OverlapRows {
  std::vector<models::MeasuredOverlap> compute;
  std::uint64_t dropped = 0;  ///< records that the recorders lost
};

/// A random small job for `ranks` whose gradients can travel under its backward; transformers and
/// DLRMs in turn. Matrices dominate, so that what overlaps is compute and transfer, not host time.
Job draw_overlap_case(std::int64_t number, const System& system, std::int64_t ranks, Draw& draw);

/// Compares the same job recorded with transfers overlapped with compute and with one
/// after the other: ops are joined by rank, name, kind and phase, each by the medians over its
/// executions. Ops shorter than 20 us are left out: they show the clock.
void add_overlap(OverlapRows& rows, const traces::GraphRun& alone,
                 const traces::GraphRun& overlapped);

}  // namespace stepcast::studies
