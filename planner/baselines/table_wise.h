#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::planner {

/// Whole tables on single ranks. `order` lists the tables in the order they are placed; each goes
/// to the rank of least summed cost that still has room (most room where none has).
EmbeddingPlan place_whole_tables(const Job& job, const std::vector<std::size_t>& order,
                                 const std::vector<double>& cost);

/// A plan with one kind of sharding for every table, over all ranks.
EmbeddingPlan over_all_ranks(const Job& job, ShardingKind kind);

/// A plan without shards yet, tables in the workload's order.
EmbeddingPlan empty_plan(const Job& job);
/// A shard of a whole table (or some columns) on consecutive ranks.
PlanShard shard_on(const EmbeddingTable& table, ShardingKind kind, std::int64_t first,
                   std::int64_t count, std::array<std::int64_t, 2> columns);

}  // namespace stepcast::planner
