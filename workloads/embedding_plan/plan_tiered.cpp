#include "workloads/embedding_plan/plan_tiered.h"

#include <algorithm>
#include <numeric>

#include "core/access/popular_rows.h"
#include "core/error.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::workloads {
std::vector<std::vector<std::int32_t>> groups_of(std::int64_t devices, std::int64_t size) {
  std::vector<std::vector<std::int32_t>> groups;
  for (std::int64_t first = 0; first < devices; first += size) {
    groups.emplace_back(static_cast<std::size_t>(size));
    std::iota(groups.back().begin(), groups.back().end(), static_cast<std::int32_t>(first));
  }
  return groups;
}

EmbeddingPlan make_tiered_plan(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  STEPCAST_CHECK(w != nullptr, "embedding plan of '{}', which is not a DLRM", job.workload.name);
  EmbeddingPlan plan;
  plan.workload = job.workload.name;
  plan.system = job.system.name;
  plan.devices = job.devices;
  const std::vector<std::int64_t> units = nested_units(job);
  for (const EmbeddingTable& t : w->tables) {
    PlanTable& to = plan.tables.emplace_back();
    to.name = t.name;
    to.frequency_order = true;
    const double lookups = static_cast<double>(job.batch.global) * t.pooling;
    const Access access = t.access ? *t.access : Access::uniform(t.rows);
    std::int64_t first = 0;
    const auto add = [&](std::int64_t end, ShardingKind kind, std::int64_t group) {
      if (end > first) {
        PlanShard& s = to.shards.emplace_back();
        s.rows = {first, end};
        s.columns = {0, t.dim};
        s.sharding = kind;
        s.split = kind == ShardingKind::kDataParallel ? Split::kReplicate : Split::kStripe;
        s.groups = groups_of(job.devices, group);
        first = end;
      }
    };
    if (job.devices > 1) {
      const auto above = [&](std::int64_t copies) {
        return rows_above(access, lookups, static_cast<double>(copies));
      };
      add(above(job.devices), ShardingKind::kDataParallel, job.devices);
      for (const std::int64_t unit : units) {
        add(above(job.devices / unit), ShardingKind::kRowWise, unit);
      }
    }
    add(t.rows, ShardingKind::kRowWise, job.devices);
    name_hot_rows(t, to);
  }
  return plan;
}

}  // namespace stepcast::workloads
