#include "planner/baselines/table_wise.h"

#include "planner/embedding/capacity.h"
#include "planner/embedding/shard_bytes.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::planner {

EmbeddingPlan place_whole_tables(const Job& job, const std::vector<std::size_t>& order,
                                 const std::vector<double>& cost) {
  EmbeddingPlan plan = workloads::empty_plan(job);
  const LayeredWorkload& w = *job.workload.layered();
  workloads::Balance balance(
      job.devices, static_cast<double>(capacities_of(job, false).front().capacity.front()));
  for (const EmbeddingTable& t : w.tables) {
    balance.put_everywhere(0, arriving_bytes(job, t, {EmbeddingRoute::kExchange, t.rows, t.dim}));
  }
  for (const std::size_t t : order) {
    const EmbeddingTable& table = w.tables[t];
    const double bytes =
        held_bytes(job, table, {EmbeddingRoute::kExchange, table.rows, table.dim}).total();
    plan.tables[t].shards = {
        workloads::shard_on(table, ShardingKind::kTableWise, balance.put(cost[t], bytes))};
  }
  return plan;
}

}  // namespace stepcast::planner
