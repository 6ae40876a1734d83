#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/placement.h"

namespace stepcast::planner::torchrec {

/// Cluster as TorchRec's planner assumes it: its defaults, in bytes per second. Source:
/// meta-pytorch/torchrec planner constants, commit a48cef79; GiB, not GB.
struct Topology {
  std::int64_t devices = 8;
  std::int64_t per_host = 8;
  double hbm = 897.0 * 1073741824;
  double intra_host = 600.0 * 1073741824;
  double inter_host = 12.5 * 1073741824;
  double hbm_capacity = 32.0 * 1073741824;
};
/// The topology of a job: its devices and machines, TorchRec's default bandwidths (which is what a
/// user gets who does not set them), 85 % of the device's memory less the dense model.
Topology topology_of(const Job& job);

/// A table as that planner sees it: no access skew, only the mean pooling factor.
struct Table {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double pooling = 1;
  bool pooled = true;
  std::int64_t features = 1;  ///< that share its rows: that many poolings of a sample
};

enum class Kind : std::uint8_t { kTableWise, kColumnWise, kRowWise, kTableRowWise, kDataParallel };

/// One shard's time in that planner's model, seconds: forward and backward compute and
/// communication summed, no overlap; fp32. Formulas: TorchRec, planner/shard_estimators.py.
double shard_seconds(const Table& table, Kind kind, std::int64_t columns, double local_batch,
                     const Topology& topology);
/// One shard's HBM bytes: weights, row-wise or element-wise optimizer state, input and output
/// buffers (sparse-dist pipeline: twice the inputs).
double shard_bytes(const Table& table, Kind kind, std::int64_t columns, double local_batch,
                   const Topology& topology);

/// The same tables as a placement problem in that planner's prices: one phase, and our search and
/// bound work on it. Options: table_wise, column_wise by widths of at least `least_columns`,
/// row_wise, table_row_wise, data_parallel; `form` is the Kind, `pieces` the column shards.
PlacementProblem problem(const std::vector<Table>& tables, double global_batch,
                         const Topology& topology, std::int64_t least_columns = 128);

/// TorchRec's own search on such a problem. Greedy proposer: every table starts at the option of
/// least shard time, then again and again the largest table goes to its next option; each proposal
/// is partitioned (tables on all ranks first, then descending onto the least loaded rank) and
/// rated by the slowest rank.
Placement greedy(const PlacementProblem& problem);
/// Dynamic programming over (table, HBM bin) with the least sum of times, 100 bins a device; each
/// bin's proposal is partitioned and rated in the same way.
Placement dynamic_programming(const PlacementProblem& problem);

std::vector<Table> tables_of(const LayeredWorkload& workload);
EmbeddingPlan plan_of(const Job& job, const PlacementProblem& problem, const Placement& placement);

}  // namespace stepcast::planner::torchrec
