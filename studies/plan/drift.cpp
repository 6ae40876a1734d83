#include "studies/plan/drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/access/row_order.h"
#include "core/clearly_less.h"
#include "core/error.h"
#include "models/cost_model.h"
#include "studies/plan/plan_comparison.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::studies {
namespace {

constexpr std::int64_t kMostFollowed = 1 << 22;  // rows
constexpr std::int64_t kDraws = 200'000;
constexpr double kHotShare = 0.01;

bool has_ids(const Access& a) { return a.kind() != AccessKind::kHistogram; }

/// The same rows at the same ranks, new ones behind them.
bool same_order(const Access& a, const Access& b) {
  return a.kind() == b.kind() && a.rows() <= b.rows() && a.seed() == b.seed() &&
         a.kind() != AccessKind::kIndices && has_ids(a);
}

/// Share of the lookups of `now` that go to the `count` hottest rows of `then`, or those that the
/// plan calls so; nullopt where rows cannot be followed.
std::optional<double> covered(const Access& then, const Access& now, std::int64_t count,
                              const RowOrder* order) {
  if (order != nullptr && LookupsInOrder::can_follow(now)) {
    return order->follows(now) ? now.cdf(static_cast<double>(count)).value
                               : LookupsInOrder(now, *order, count).range(0, count).second;
  }
  if (same_order(then, now)) {
    return now.cdf(static_cast<double>(count)).value;
  }
  if (!has_ids(then) || !has_ids(now) || count > kMostFollowed) {
    return std::nullopt;
  }
  std::unordered_set<std::int64_t> rows;
  for (std::int64_t k = 0; k < count; ++k) {
    rows.insert(then.row_of_rank(k));
  }
  std::int64_t hits = 0;
  if (now.kind() == AccessKind::kIndices && !now.recorded().empty()) {
    for (const std::int64_t id : now.recorded()) {
      hits += rows.count(id) != 0 ? 1 : 0;
    }
    return static_cast<double>(hits) / static_cast<double>(now.recorded().size());
  }
  AccessSampler sampler(now, 1);
  for (std::int64_t i = 0; i < kDraws; ++i) {
    hits += rows.count(sampler.next_row()) != 0 ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(kDraws);
}

TableDrift drift_of(const EmbeddingTable& then, const EmbeddingTable& now, const PlanTable& plan,
                    const PlanTable& plan_now, double batch) {
  TableDrift d;
  d.name = then.name;
  const Access a = then.access ? *then.access : Access::uniform(then.rows);
  const Access b = now.access ? *now.access : Access::uniform(now.rows);
  std::int64_t first = then.rows;
  for (const PlanShard& s : plan.shards) {
    first = s.rows[0] == 0 ? std::min(first, s.rows[1]) : first;
  }
  d.planned_range = plan.frequency_order && first < then.rows;
  d.hot_rows = d.planned_range
                   ? first
                   : std::max<std::int64_t>(
                         1, static_cast<std::int64_t>(kHotShare * static_cast<double>(then.rows)));
  d.covered_then = covered(a, a, d.hot_rows, d.planned_range ? plan.order.get() : nullptr)
                       .value_or(a.cdf(static_cast<double>(d.hot_rows)).value);
  const auto share = covered(a, b, d.hot_rows, d.planned_range ? plan_now.order.get() : nullptr);
  d.followed = share.has_value();
  d.covered_now = share.value_or(b.cdf(static_cast<double>(d.hot_rows)).value);
  d.distinct_then = a.unique(batch * then.pooling).value;
  d.distinct_now = b.unique(batch * now.pooling).value;
  return d;
}

/// How far a table is from what it was: lookups that left the hot rows, else distinct rows.
double distance(const TableDrift& d) {
  return std::abs(d.covered_now - d.covered_then) +
         0.1 * std::abs(d.distinct_now / std::max(d.distinct_then, 1.0) - 1);
}

}  // namespace

DriftReport drift(const Job& then, const Job& now, const ReplanRequest& request) {
  if (!then.embedding_plan) {
    throw InputError("job: embedding.plan",
                     "expected the plan whose drift is asked for; name a "
                     "plan file");
  }
  // Rows that the plan calls hot are rows of then, also if its file does not list them.
  Job before = then;
  const auto& tables = then.workload.layered()->tables;
  for (PlanTable& plan : before.embedding_plan->tables) {
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [&](const EmbeddingTable& t) { return t.name == plan.name; });
    if (plan.order == nullptr && table != tables.end()) {
      workloads::name_hot_rows(*table, plan);
    }
  }
  DriftReport report;
  report.adapted = planner::adapted_plan(now, *before.embedding_plan);
  Job later = now;
  later.embedding_plan = report.adapted.plan;
  ReplanRequest of_now = request;
  if (!request.in_use && (!report.adapted.as_it_was() || then.devices != now.devices)) {
    of_now.in_use = before.embedding_plan;
  }
  const auto named = [](const auto& all, const std::string& name) {
    return std::find_if(all.begin(), all.end(), [&](const auto& t) { return t.name == name; });
  };
  const auto& added = report.adapted.added;
  const auto& of_later = now.workload.layered()->tables;
  for (std::size_t t = 0; t < of_later.size(); ++t) {
    const std::string& name = of_later[t].name;
    if (std::find(added.begin(), added.end(), name) == added.end()) {
      report.tables.push_back(
          drift_of(*named(tables, name), of_later[t], *named(before.embedding_plan->tables, name),
                   later.embedding_plan->tables[t], static_cast<double>(then.batch.global)));
    }
  }
  std::stable_sort(report.tables.begin(), report.tables.end(), [](const auto& a, const auto& b) {
    return clearly_less(distance(b), distance(a));
  });
  const ReplanReport again = replan(before, request);
  report.step_then = again.from_step;
  report.searched_then = again.plan.predicted_step;
  report.replan = replan(later, of_now);
  report.step_now = report.replan.from_step;
  return report;
}

}  // namespace stepcast::studies
