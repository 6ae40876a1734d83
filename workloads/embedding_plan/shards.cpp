#include "workloads/embedding_plan/shards.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace stepcast::workloads {

EmbeddingPlan empty_plan(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  STEPCAST_CHECK(w != nullptr, "embedding plan of '{}', which is not a DLRM", job.workload.name);
  EmbeddingPlan plan;
  plan.workload = job.workload.name;
  plan.system = job.system.name;
  plan.devices = job.devices;
  for (const EmbeddingTable& t : w->tables) {
    plan.tables.push_back({.name = t.name, .frequency_order = false, .shards = {}});
  }
  return plan;
}

std::vector<std::int32_t> rank_range(std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), static_cast<std::int32_t>(first));
  return ranks;
}

std::vector<std::vector<std::int32_t>> groups_of(std::int64_t devices, std::int64_t size) {
  std::vector<std::vector<std::int32_t>> groups;
  for (std::int64_t first = 0; first < devices; first += size) {
    groups.push_back(rank_range(first, size));
  }
  return groups;
}

PlanShard shard_on(const EmbeddingTable& table, ShardingKind kind, std::int64_t first,
                   std::int64_t count, std::array<std::int64_t, 2> columns) {
  PlanShard s;
  s.rows = {0, table.rows};
  s.columns = columns;
  s.sharding = kind;
  s.split = kind == ShardingKind::kDataParallel ? Split::kReplicate : Split::kBlock;
  s.groups = {rank_range(first, count)};
  return s;
}

PlanShard shard_on(const EmbeddingTable& table, ShardingKind kind, std::int64_t first,
                   std::int64_t count) {
  return shard_on(table, kind, first, count, {0, table.dim});
}

std::int64_t Balance::put(double cost, double bytes, const std::vector<std::int64_t>& taken) {
  std::ptrdiff_t best = -1;
  for (std::size_t i = 0; i < load_.size(); ++i) {
    if (std::find(taken.begin(), taken.end(), static_cast<std::int64_t>(i)) != taken.end()) {
      continue;
    }
    if (best < 0 || better(i, static_cast<std::size_t>(best), bytes)) {
      best = static_cast<std::ptrdiff_t>(i);
    }
  }
  load_[static_cast<std::size_t>(best)] += cost;
  free_[static_cast<std::size_t>(best)] -= bytes;
  return best;
}

void Balance::put_everywhere(double cost, double bytes) {
  for (std::size_t i = 0; i < load_.size(); ++i) {
    load_[i] += cost;
    free_[i] -= bytes;
  }
}

bool Balance::better(std::size_t a, std::size_t b, double bytes) const {
  const bool fits_a = free_[a] >= bytes;
  const bool fits_b = free_[b] >= bytes;
  if (fits_a != fits_b) {
    return fits_a;
  }
  return fits_a ? load_[a] < load_[b] : free_[a] > free_[b];
}

}  // namespace stepcast::workloads
