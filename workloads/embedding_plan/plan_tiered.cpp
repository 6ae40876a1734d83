
#include "core/access/popular_rows.h"
#include "workloads/embedding_plan/plan.h"
#include "workloads/embedding_plan/shards.h"

namespace stepcast::workloads {

EmbeddingPlan make_tiered_plan(const Job& job) {
  EmbeddingPlan plan = empty_plan(job);
  const std::vector<std::int64_t> units = nested_units(job);
  for (std::size_t i = 0; i < plan.tables.size(); ++i) {
    const EmbeddingTable& t = job.workload.layered()->tables[i];
    PlanTable& to = plan.tables[i];
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
