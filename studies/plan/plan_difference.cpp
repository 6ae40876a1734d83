#include "studies/plan/plan_difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/embedding/ledger.h"

namespace stepcast::studies {
namespace {

const PlanTable& table_of(const EmbeddingPlan& plan, const std::string& name) {
  return *std::find_if(plan.tables.begin(), plan.tables.end(),
                       [&](const PlanTable& t) { return t.name == name; });
}

std::string ranks_text(const std::vector<std::int32_t>& group) {
  return group.size() == 1 ? fmt::format("on {}", group.front())
                           : fmt::format("over {} from {}", group.size(), group.front());
}

}  // namespace

std::string placement_text(const PlanTable& table) {
  const PlanShard& first = table.shards.front();
  const bool tiers = std::any_of(table.shards.begin(), table.shards.end(), [&](const PlanShard& s) {
    return s.rows != first.rows || s.tier != first.tier;
  });
  if (tiers) {
    std::string text;
    for (const PlanShard& s : table.shards) {
      text += fmt::format("{}{} rows {} in {}", text.empty() ? "" : ", ", s.rows[1] - s.rows[0],
                          name_of(s.sharding), s.tier);
    }
    return text;
  }
  std::string text(name_of(first.sharding));
  if (table.shards.size() > 1) {
    std::vector<std::int32_t> ranks;
    for (const PlanShard& s : table.shards) {
      ranks.push_back(s.groups.front().front());
    }
    const std::size_t shown = std::min<std::size_t>(ranks.size(), 8);
    return fmt::format(
        "{} x{} on {}{}", text, ranks.size(),
        fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
        shown < ranks.size() ? ", ..." : "");
  }
  if (first.sharding == ShardingKind::kDataParallel) {
    return text;
  }
  text += " " + ranks_text(first.groups.front());
  if (first.groups.size() > 1) {
    text += fmt::format(", {} copies", first.groups.size());
  }
  return first.split == Split::kStripe ? text + ", striped" : text;
}

PlanDifference plan_difference(const Job& job, const EmbeddingPlan& before,
                               const EmbeddingPlan& after) {
  PlanDifference d;
  d.migration = planner::migration_between(job, before, after);
  for (const planner::Migration::Table& t : d.migration.tables) {
    d.tables.push_back({t.name, placement_text(table_of(before, t.name)),
                        placement_text(table_of(after, t.name)), t.bytes});
  }
  std::map<std::pair<std::int32_t, std::string>, PlanDifference::Memory> memory;
  // The ledger of a plan for other tables or devices is that of another job.
  const auto& tables = job.workload.layered()->tables;
  const bool of_job = before.devices == job.devices && before.tables.size() == tables.size() &&
                      std::all_of(tables.begin(), tables.end(), [&](const EmbeddingTable& t) {
                        return planner::placed_table(before, t) != nullptr;
                      });
  for (const LedgerLine& l : of_job ? planner::ledger_of(job, before) : std::vector<LedgerLine>{}) {
    memory[{l.rank, l.tier}].before = l.total();
    memory[{l.rank, l.tier}].capacity = l.capacity;
  }
  for (const LedgerLine& l : planner::ledger_of(job, after)) {
    memory[{l.rank, l.tier}].after = l.total();
    memory[{l.rank, l.tier}].capacity = l.capacity;
  }
  for (auto& [key, m] : memory) {
    if (of_job && std::abs(m.before - m.after) >= 1) {
      m.rank = key.first;
      m.tier = key.second;
      d.memory.push_back(m);
    }
  }
  return d;
}

}  // namespace stepcast::studies
