#include "planner/baselines/table_wise.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/clearly_less.h"
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

EmbeddingPlan WholeTableRule::plan(const Job& job) const {
  std::vector<double> costs;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    costs.push_back(comparable(cost(job, t)));
  }
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&costs](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  return place_whole_tables(job, order, costs);
}

const std::vector<WholeTableRule>& whole_table_rules() {
  using J = const Job&;
  using T = const EmbeddingTable&;
  static const std::vector<WholeTableRule> rules{
      {"round_robin", [](J, T) { return 1.0; }, true},
      {"dim_greedy", [](J, T t) { return static_cast<double>(t.dim); }},
      {"lookup_greedy", [](J, T t) { return static_cast<double>(t.dim) * t.pooling; }},
      {"size_lookup_greedy",
       [](J, T t) {
         return static_cast<double>(t.dim) * t.pooling *
                std::log10(static_cast<double>(std::max<std::int64_t>(t.rows, 2)));
       }},
      // Lookup bytes over memory bandwidth plus output bytes over link bandwidth: no latency, no
      // skew.
      {"bytes_only", [](J job, T t) {
         const double row = format_bytes(job.row_format(t), 1, t.dim).base();
         const double batch = static_cast<double>(job.batch.global);
         const System& system = job.system;
         const double link = system.fabric.empty() ? 1e9 : system.fabric.back().bandwidth.base();
         const double memory = std::max(system.device.bandwidth.base(), 1.0);
         const double sent = t.mode == PoolingMode::kSequence ? batch * t.pooling : batch;
         return 3 * batch * t.pooling * row / memory + 2 * sent * row / link;
       }}};
  return rules;
}

}  // namespace stepcast::planner
