#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/split_mix.h"
#include "planner/baselines/baselines.h"
#include "planner/baselines/methods.h"
#include "planner/baselines/table_wise.h"

namespace stepcast::planner {
namespace {

std::vector<std::size_t> descending(const std::vector<double>& cost) {
  std::vector<std::size_t> order(cost.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&cost](std::size_t a, std::size_t b) { return cost[a] > cost[b]; });
  return order;
}

/// Sorted by a cost of its own, each table goes to the rank with least of that cost.
BaselinePlan by_cost(const Job& job, double (*cost_of)(const Job&, const EmbeddingTable&)) {
  std::vector<double> cost;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    cost.push_back(cost_of(job, t));
  }
  return {place_whole_tables(job, descending(cost), cost), ""};
}

double lookups(const EmbeddingTable& t) { return static_cast<double>(t.dim) * t.pooling; }
double log_rows(const EmbeddingTable& t) {
  return std::log10(static_cast<double>(std::max<std::int64_t>(t.rows, 2)));
}

}  // namespace

BaselinePlan random_plan(const Job& job, const models::CostModel&, std::uint64_t seed) {
  const std::size_t tables = job.workload.layered()->tables.size();
  std::uint64_t state = seed;
  // A table on a random rank with room: a random cost makes the least loaded rank a random one.
  std::vector<std::size_t> order(tables);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = tables; i > 1; --i) {
    std::swap(order[i - 1], order[next_split_mix(state) % i]);
  }
  std::vector<double> cost;
  for (std::size_t t = 0; t < tables; ++t) {
    cost.push_back(static_cast<double>(next_split_mix(state) % 1000000));
  }
  return {place_whole_tables(job, order, cost), ""};
}

BaselinePlan round_robin_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  std::vector<std::size_t> order(job.workload.layered()->tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return {place_whole_tables(job, order, std::vector<double>(order.size(), 1)), ""};
}

BaselinePlan dim_greedy_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  return by_cost(job,
                 [](const Job&, const EmbeddingTable& t) { return static_cast<double>(t.dim); });
}
BaselinePlan size_greedy_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  return by_cost(job, [](const Job&, const EmbeddingTable& t) {
    return static_cast<double>(t.dim) * static_cast<double>(t.rows);
  });
}
BaselinePlan lookup_greedy_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  return by_cost(job, [](const Job&, const EmbeddingTable& t) { return lookups(t); });
}
BaselinePlan size_lookup_greedy_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  return by_cost(job, [](const Job&, const EmbeddingTable& t) { return lookups(t) * log_rows(t); });
}
/// Lookup bytes over memory bandwidth plus output bytes over link bandwidth: no latency, no skew.
BaselinePlan bytes_only_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  return by_cost(job, [](const Job& j, const EmbeddingTable& t) {
    const double row = format_bytes(j.row_format(t), 1, t.dim).base();
    const double batch = static_cast<double>(j.batch.global);
    const double link = j.system.fabric.empty() ? 1e9 : j.system.fabric.back().bandwidth.base();
    const double memory = std::max(j.system.device.bandwidth.base(), 1.0);
    const double sent = t.mode == PoolingMode::kSequence ? batch * t.pooling : batch;
    return 3 * batch * t.pooling * row / memory + 2 * sent * row / link;
  });
}
BaselinePlan flat_row_wise_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  return {over_all_ranks(job, ShardingKind::kRowWise), ""};
}

}  // namespace stepcast::planner
