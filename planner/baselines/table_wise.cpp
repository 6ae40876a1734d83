#include "planner/baselines/table_wise.h"

#include <algorithm>
#include <numeric>

#include "planner/embedding/capacity.h"
#include "planner/embedding/shard_bytes.h"

namespace stepcast::planner {

EmbeddingPlan empty_plan(const Job& job) {
  EmbeddingPlan plan;
  plan.workload = job.workload.name;
  plan.system = job.system.name;
  plan.devices = job.devices;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    plan.tables.push_back({.name = t.name, .frequency_order = false, .shards = {}});
  }
  return plan;
}

PlanShard shard_on(const EmbeddingTable& table, ShardingKind kind, std::int64_t first,
                   std::int64_t count, std::array<std::int64_t, 2> columns) {
  PlanShard s;
  s.rows = {0, table.rows};
  s.columns = columns;
  s.sharding = kind;
  s.split = kind == ShardingKind::kDataParallel ? Split::kReplicate : Split::kBlock;
  s.groups.emplace_back(static_cast<std::size_t>(count));
  std::iota(s.groups.front().begin(), s.groups.front().end(), static_cast<std::int32_t>(first));
  return s;
}

EmbeddingPlan over_all_ranks(const Job& job, ShardingKind kind) {
  EmbeddingPlan plan = empty_plan(job);
  const LayeredWorkload& w = *job.workload.layered();
  for (std::size_t t = 0; t < w.tables.size(); ++t) {
    plan.tables[t].shards = {shard_on(w.tables[t], kind, 0, job.devices, {0, w.tables[t].dim})};
  }
  return plan;
}

EmbeddingPlan place_whole_tables(const Job& job, const std::vector<std::size_t>& order,
                                 const std::vector<double>& cost) {
  EmbeddingPlan plan = empty_plan(job);
  const LayeredWorkload& w = *job.workload.layered();
  const auto ranks = static_cast<std::size_t>(job.devices);
  std::vector<double> load(ranks, 0);
  const auto capacity = static_cast<double>(capacities_of(job, false).front().capacity.front());
  std::vector<double> room(ranks, capacity);
  for (const EmbeddingTable& t : w.tables) {
    const double everywhere =
        arriving_bytes(job, t, {EmbeddingRoute::kExchange, t.rows, t.dim}).total();
    for (double& r : room) {
      r -= everywhere;
    }
  }
  for (const std::size_t t : order) {
    const EmbeddingTable& table = w.tables[t];
    const double bytes =
        held_bytes(job, table, {EmbeddingRoute::kExchange, table.rows, table.dim}).total();
    std::size_t best = 0;
    for (std::size_t r = 1; r < ranks; ++r) {
      const bool fits = room[r] >= bytes;
      const bool best_fits = room[best] >= bytes;
      if (fits != best_fits ? fits : fits ? load[r] < load[best] : room[r] > room[best]) {
        best = r;
      }
    }
    load[best] += cost[t];
    room[best] -= bytes;
    plan.tables[t].shards = {shard_on(table, ShardingKind::kTableWise,
                                      static_cast<std::int64_t>(best), 1, {0, table.dim})};
  }
  return plan;
}

}  // namespace stepcast::planner
