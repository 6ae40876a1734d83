#pragma once
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::workloads {

/// Share of a device's memory for tables; the rest: activations, buffers, fragmentation.
constexpr double kUsableMemory = 0.85;

/// A plan with one kind of sharding for every table. Balanced greedily, largest cost first, onto
/// the least loaded ranks that have memory left (weights + optimizer state under 85 % of the
/// device); a job that does not fit still gets a plan.
///
///   table_wise       whole tables on single ranks
///   row_wise         ceil(rows / ranks) rows of every table on every rank
///   column_wise      each table cut into the fewest equal parts whose cost is at most a rank's
///                    fair share (parts of at least 4 columns, on distinct ranks)
///   table_row_wise   tables on nodes, rows over the devices of the node (`node_size`)
///   data_parallel    every table on every rank
///
/// Cost of a table: dim * pooling * log10(rows), the "size-lookup" rule: bytes looked up, weighted
/// by how badly they cache.
EmbeddingPlan make_embedding_plan(const Job& job, ShardingKind kind);

/// The same by name, or `auto`: tables with no more rows than the local batch are data-parallel
/// (their dense gradient is smaller than their exchange), tables that exceed half a device or twice
/// a rank's fair share of the cost are row-wise, the others table-wise. A rule of thumb to start
/// from, not a search. `tiered`: make_tiered_plan. Errors: InputError for other names.
EmbeddingPlan make_embedding_plan(const Job& job, std::string_view choice);

/// Writes down which rows of a table in order of popularity are hot, by id, as its law has them
/// now; leaves a table alone whose rows have no ids (a histogram). After the shards are there.
void name_hot_rows(const EmbeddingTable& table, PlanTable& plan);

/// The plan a job names: its own (checked), or the one made by `embedding_choice`.
EmbeddingPlan resolved_embedding_plan(const Job& job);

/// Devices among which table-row-wise splits rows: the largest number that divides both the job's
/// devices and a machine's.
std::int64_t node_size(const Job& job);

/// Sizes of the units that lie inside each other between one rank and all: node_size, then units of
/// the fabric's levels (racks, pods, ...) that divide the job's devices; ascending, at most
/// kMostGroupSizes. Rows may have a copy in every unit of each.
std::vector<std::int64_t> nested_units(const Job& job);

/// A plan with the rows of every table in order of popularity, in ranges (FlexShard, arXiv
/// 2301.02959): a copy on every rank for rows with more than W expected lookups per global batch (W
/// ranks), a copy in every unit of each size (nested_units: machines, racks, ...) for rows with
/// more than N (N such units), one copy for the rest; all but the first striped over their ranks.
/// At these thresholds the bytes that a copy saves in
/// the exchanges of unpooled rows equal those of its gradient's all-reduce, link level by link
/// level. A rule of thumb to start from: it knows no capacity, no update cost and no link speed;
/// `stepcast plan` weighs those.
EmbeddingPlan make_tiered_plan(const Job& job);

}  // namespace stepcast::workloads
