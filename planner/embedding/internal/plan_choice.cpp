#include "planner/embedding/internal/plan_choice.h"

#include <algorithm>

#include "planner/embedding/internal/hot_rows.h"
#include "planner/embedding/internal/row_tier_options.h"
#include "planner/embedding/migration.h"

namespace stepcast::planner::internal {
namespace {

/// Equal column parts of all rows, each on one group of the same size.
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
    add_row_tiers(job, job.workload.layered()->tables[t], m, same);
    if (same_placement(same, table)) {
      return Choice{static_cast<std::int32_t>(o), {}};
    }
  }
  return std::nullopt;
}

/// Groups of consecutive ranks, by their number among those of their size; nullopt where they do
/// not start at a multiple of it, or two are the same.
std::optional<std::vector<std::int32_t>> places_of(const PlanTable& table) {
  std::vector<std::int32_t> places;
  for (const PlanShard& s : table.shards) {
    const auto& group = s.groups.front();
    const auto size = static_cast<std::int32_t>(group.size());
    for (std::int32_t i = 0; i < size; ++i) {
      if (group[static_cast<std::size_t>(i)] != group.front() + i) {
        return std::nullopt;
      }
    }
    if (group.front() % size != 0) {
      return std::nullopt;
    }
    places.push_back(group.front() / size);
  }
  std::vector<std::int32_t> distinct = places;
  std::sort(distinct.begin(), distinct.end());
  if (std::adjacent_find(distinct.begin(), distinct.end()) != distinct.end()) {
    return std::nullopt;
  }
  return places;
}

/// The option with as many blocks on groups of that size.
std::optional<Choice> blocks_of(const PlanSpace& space, std::size_t t, const RowBlocks& blocks,
                                const PlanTable& table) {
  const auto options = static_cast<std::int32_t>(space.problem().tables[t].options.size());
  for (std::int32_t o = 0; o < options; ++o) {
    const OptionMeaning& m = space.meaning(t, o);
    if (m.row_blocks == blocks.blocks && m.group == blocks.group) {
      return Choice{o, *places_of(table)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<RowBlocks> row_blocks_of(const EmbeddingTable& table, const PlanTable& plan) {
  const auto blocks = static_cast<std::int64_t>(plan.shards.size());
  if (plan.frequency_order || blocks < 2) {
    return std::nullopt;
  }
  const PlanShard& first = plan.shards.front();
  const std::size_t group = first.groups.empty() ? 0 : first.groups.front().size();
  for (std::int64_t b = 0; b < blocks; ++b) {
    const PlanShard& s = plan.shards[static_cast<std::size_t>(b)];
    if (s.groups.size() != 1 || s.groups.front().size() != group || group == 0 ||
        s.rows[0] != first_row_of(table, b, blocks) ||
        s.rows[1] != first_row_of(table, b + 1, blocks) || s.columns[0] != 0 ||
        s.columns[1] != table.dim || s.tier != "hbm" || s.sharding == ShardingKind::kDataParallel) {
      return std::nullopt;
    }
  }
  return places_of(plan) ? std::optional(RowBlocks{blocks, static_cast<std::int64_t>(group)})
                         : std::nullopt;
}

std::optional<Choice> choice_of(const Job& job, const PlanSpace& space, std::size_t t,
                                const PlanTable& table) {
  if (table.frequency_order) {
    return tiers_of(job, space, t, table);
  }
  if (const auto blocks = row_blocks_of(job.workload.layered()->tables[t], table)) {
    return blocks_of(space, t, *blocks, table);
  }
  const auto places = regular(table) ? places_of(table) : std::nullopt;
  if (!places) {
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
    if (!whole || m.group != size || m.tier != first.tier || m.row_tiers || m.row_blocks > 1 ||
        m.column_parts != static_cast<std::int64_t>(table.shards.size()) ||
        (m.kind == ShardingKind::kDataParallel) != copies) {
      continue;
    }
    return Choice{static_cast<std::int32_t>(o),
                  size < devices ? *places : std::vector<std::int32_t>{}};
  }
  return std::nullopt;
}

std::optional<Placement> placement_of(const Job& job, const PlanSpace& space,
                                      const EmbeddingPlan& plan) {
  Placement placement;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    auto choice = choice_of(job, space, t, plan.tables[t]);
    if (!choice) {
      return std::nullopt;
    }
    placement.push_back(std::move(*choice));
  }
  return placement;
}

}  // namespace stepcast::planner::internal
