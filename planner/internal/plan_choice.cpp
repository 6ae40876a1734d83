#include "planner/internal/plan_choice.h"

#include <algorithm>

#include "planner/internal/tier_options.h"
#include "planner/migration.h"

namespace stepcast::planner::internal {
namespace {

/// Equal column parts of all rows, each on one run of ranks that starts at a multiple of its size.
bool regular(const PlanTable& table) {
  const PlanShard& first = table.shards.front();
  const std::int64_t width = first.columns[1] - first.columns[0];
  const std::size_t size = first.groups.empty() ? 0 : first.groups.front().size();
  std::int64_t column = 0;
  for (const PlanShard& s : table.shards) {
    if (s.groups.size() != 1 || s.groups.front().size() != size || s.rows != first.rows ||
        s.columns[0] != column || s.columns[1] != column + width || s.sharding != first.sharding ||
        s.tier != first.tier) {
      return false;
    }
    column += width;
    const auto& group = s.groups.front();
    for (std::size_t i = 0; i < size; ++i) {
      if (group[i] != group.front() + static_cast<std::int32_t>(i)) {
        return false;
      }
    }
    if (static_cast<std::size_t>(group.front()) % size != 0) {
      return false;
    }
  }
  return size > 0 && first.rows[0] == 0;
}

/// Rows by popularity: the option with the very same ranges.
std::optional<Choice> tiers_of(const Job& job, const PlanSpace& space, std::size_t t,
                               const PlanTable& table) {
  const auto& options = space.problem().tables[t].options;
  for (std::size_t o = 0; o < options.size(); ++o) {
    const OptionMeaning& m = space.meaning(t, static_cast<std::int32_t>(o));
    if (!m.row_tiers) {
      continue;
    }
    PlanTable same;
    add_row_tiers(job, job.workload.dlrm()->tables[t], m, same);
    if (same_placement(same, table)) {
      return Choice{static_cast<std::int32_t>(o), {}};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Choice> choice_of(const Job& job, const PlanSpace& space, std::size_t t,
                                const PlanTable& table) {
  if (table.frequency_order) {
    return tiers_of(job, space, t, table);
  }
  if (!regular(table)) {
    return std::nullopt;
  }
  const std::int64_t devices = space.problem().ranks;
  const auto& options = space.problem().tables[t].options;
  const PlanShard& first = table.shards.front();
  const auto size = static_cast<std::int64_t>(first.groups.front().size());
  const bool copies = first.sharding == ShardingKind::kDataParallel;
  for (std::size_t o = 0; o < options.size(); ++o) {
    const OptionMeaning& m = space.meaning(t, static_cast<std::int32_t>(o));
    const bool whole = m.kind == ShardingKind::kDataParallel
                           ? first.split == Split::kReplicate && size == devices
                           : first.split != Split::kReplicate || size == 1;
    if (!whole || m.group != size || m.tier != first.tier || m.row_tiers ||
        m.column_parts != static_cast<std::int64_t>(table.shards.size()) ||
        (m.kind == ShardingKind::kDataParallel) != copies) {
      continue;
    }
    Choice c{static_cast<std::int32_t>(o), {}};
    if (size < devices) {
      for (const PlanShard& s : table.shards) {
        c.groups.push_back(s.groups.front().front() / static_cast<std::int32_t>(size));
      }
    }
    std::vector<std::int32_t> distinct = c.groups;
    std::sort(distinct.begin(), distinct.end());
    if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) {
      return std::nullopt;
    }
    return c;
  }
  return std::nullopt;
}

}  // namespace stepcast::planner::internal
