#pragma once
#include <cstdint>

#include "core/job.h"
#include "core/plan.h"

namespace stepcast::workloads {

/// Settings of HugeCTR's automatic plan; the defaults are those of its MLPerf submissions on one
/// machine of eight devices.
struct HugeCtrRule {
  Bytes replicated_below = MB(8);  ///< smaller tables (weights) are data-parallel
  double memory_over_link = 7;     ///< bandwidth of the device's memory over that of its links
  int splits = 20;                 ///< tables tried for a row split, at most
  /// Devices that share a table by rows: 1 (`auto`), or those of a machine (`hier_auto`: tables go
  /// to machines). Must divide the job's devices.
  std::int64_t members = 1;
};

/// The plan HugeCTR's automatic mode makes for its embedding collection:
///
///   cost of a shard = pooling / parts + memory_over_link / work_ratio
///
/// the lookups it serves, and the pooled row each sample exchanges, in units of one lookup's
/// memory traffic. work_ratio = bytes a lookup moves in memory, forward and update, over bytes a
/// pooled row moves on the link, forward and backward, from the job's formats and optimizer. Tables
/// below the limit are data-parallel. The others are placed largest cost first on the least loaded
/// place (a rank or a machine) that has room; then the costliest table of the most loaded place is
/// split by rows over all ranks and all are placed again, up to `splits` times; the plan with the
/// lowest maximum wins.
///
/// Differs from the original: that one splits by doubling over some of the ranks, here a split goes
/// over all of them, the row-wise sharding the executor has.
/// Errors: none; a job that does not fit still gets a plan.
/// Source: HugeCTR sharding planner as used in MLPerf Training v3.0 and v3.1 (cost, limits and
/// number of iterations; own implementation).
EmbeddingPlan hugectr_plan(const Job& job, const HugeCtrRule& rule = {});

}  // namespace stepcast::workloads
