#include "workloads/embedding_plan/plan_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace stepcast::workloads {
namespace {

std::string in_tier(const PlanShard& s) {
  return s.tier == "hbm"     ? ""
         : s.cache_bytes > 0 ? fmt::format(" in {} behind a cache", s.tier)
                             : fmt::format(" in {}", s.tier);
}

/// How a shard that spans the rows of its table is placed.
std::string whole_rows(const PlanShard& s, std::int64_t devices) {
  const auto members = static_cast<std::int64_t>(s.groups.front().size());
  const std::string_view kind = name_of(s.sharding);
  if (s.sharding == ShardingKind::kDataParallel) {
    return fmt::format("{} on every rank", kind);
  }
  if (s.sharding == ShardingKind::kColumnWise) {
    return fmt::format("{}, each part on one rank", kind) + in_tier(s);
  }
  if (s.groups.size() > 1) {
    return fmt::format("{} with a copy for every {} ranks", kind, members);
  }
  return (members == 1         ? fmt::format("{} on one rank each", kind)
          : members == devices ? fmt::format("{} over all {} ranks", kind, devices)
                               : fmt::format("{} over {} ranks each", kind, members)) +
         in_tier(s);
}

/// How many copies of a range of rows there are.
std::string range(const PlanShard& s, std::int64_t devices) {
  const auto members = static_cast<std::int64_t>(s.groups.front().size());
  const bool everywhere = s.sharding == ShardingKind::kDataParallel ||
                          (members == 1 && static_cast<std::int64_t>(s.groups.size()) == devices);
  return (everywhere            ? std::string("on every rank")
          : s.groups.size() > 1 ? fmt::format("a copy for every {} ranks", members)
                                : std::string("one copy")) +
         in_tier(s);
}

std::string placed(const PlanTable& t, std::int64_t rows, std::int64_t devices) {
  std::vector<const PlanShard*> shards;
  for (const PlanShard& s : t.shards) {
    shards.push_back(&s);
  }
  std::stable_sort(shards.begin(), shards.end(),
                   [](const auto* a, const auto* b) { return a->rows[0] < b->rows[0]; });
  std::vector<std::string> kinds;
  bool ranges = false;
  for (const PlanShard* s : shards) {
    const bool part = s->rows[1] - s->rows[0] < rows;
    ranges = ranges || part;
    std::string kind = part ? range(*s, devices) : whole_rows(*s, devices);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
      kinds.push_back(std::move(kind));
    }
  }
  return fmt::format("{}{}", ranges ? "row ranges " : "", fmt::join(kinds, ", then "));
}

}  // namespace

std::vector<PlanPart> plan_parts(const EmbeddingPlan& plan) {
  std::map<std::string, std::int64_t> count;
  for (const PlanTable& t : plan.tables) {
    std::int64_t rows = 0;
    for (const PlanShard& s : t.shards) {
      rows = std::max(rows, s.rows[1]);
    }
    ++count[placed(t, rows, plan.devices)];
  }
  std::vector<PlanPart> parts;
  for (const auto& [kind, tables] : count) {
    parts.push_back({tables, kind});
  }
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.tables > b.tables; });
  return parts;
}

bool planned_by_rule(const Job& job) {
  const LayeredWorkload* w = job.workload.layered();
  return w != nullptr && !w->tables.empty() && !job.embedding_plan;
}

std::string plan_line(const Job& job, const EmbeddingPlan& plan) {
  std::vector<std::string> parts;
  for (const PlanPart& p : plan_parts(plan)) {
    parts.push_back(fmt::format("{} table{} {}", p.tables, p.tables == 1 ? "" : "s", p.placed));
  }
  return fmt::format("{}: {}", job.embedding_choice, fmt::join(parts, "; "));
}

}  // namespace stepcast::workloads
