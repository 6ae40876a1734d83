#pragma once
#include <cstdint>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::workloads {

/// Settings of HugeCTR's automatic plan; the defaults are those of its MLPerf submissions on one
/// DGX H100.
struct HugeCtrRule {
  Bytes replicated_below = MB(8);  ///< smaller tables (weights) are data-parallel
  double memory_over_link = 7;     ///< bandwidth of the device's memory over that of its links
  int splits = 20;                 ///< tables tried for a row split, at most
  /// Devices that share a table by rows: 1 (`auto`), or those of a machine (`hier_auto`: tables go
  /// to machines). Must divide the job's devices.
  std::int64_t members = 1;
};

/// The settings of its MLPerf submissions for the job's devices. Up to eight: `auto`, tables from
/// 8 MB on. More, on several machines: `hier_auto`, tables from 12.5 MB on.
/// memory_over_link is the bandwidth of memory over that of the level that joins the places, whole:
/// 7 on an H100, 11 on an H200, 9 on a B200, 67 between machines of H100s.
/// Source: mlcommons training_results v3.1 to v5.1, dlrm_dcnv2, config_*.sh (SHARDING_PLAN,
/// MEM_COMM_BW_RATIO, DP_SHARDING_THRESHOLD).
HugeCtrRule hugectr_rule(const Job& job);

/// The plan HugeCTR's automatic mode makes for its embedding collection:
///
///   cost of a part = pooling / parts + memory_over_link / work_ratio
///
/// the lookups it serves, and the pooled row each sample exchanges, in units of one lookup's
/// memory traffic. work_ratio = bytes a lookup moves in memory, forward and update, over bytes a
/// pooled row moves on the link, forward and backward, from the job's formats and optimizer. Tables
/// below the limit are data-parallel. The parts of the others are placed, those with the most
/// lookups first, on the least loaded place (a rank or a machine) that has room and none of the
/// same table; then the table whose parts have the most lookups gets twice as many, up to `splits`
/// times; the plan with the lowest maximum wins. A part is a block of rows on its place: partial
/// sums travel, those of a machine added up before they leave it.
///
/// Errors: none; a job that does not fit still gets a plan.
/// Source: NVIDIA-Merlin/HugeCTR samples/dlrm/sharding/planner.py, as used in MLPerf Training v3.0
/// to v5.1 (cost, limits and number of iterations; own implementation).
EmbeddingPlan hugectr_plan(const Job& job, const HugeCtrRule& rule = {});

}  // namespace stepcast::workloads
