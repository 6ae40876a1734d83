#include "workloads/embedding_plan/plan_rules.h"

#include <fmt/ranges.h>

#include <set>
#include <string>

#include "core/access/access.h"
#include "core/error.h"
#include "workloads/embedding_plan/plan_layout.h"

namespace stepcast::workloads {
namespace {

using Broken = std::optional<BrokenRule>;

bool overlap(const std::array<std::int64_t, 2>& a, const std::array<std::int64_t, 2>& b) {
  return a[0] < b[1] && b[0] < a[1];
}

/// Every shard lies inside the table, no two overlap, and together they have its area: so they tile
/// it.
Broken broken_tiling(const PlanTable& plan, const EmbeddingTable& table, const std::string& where) {
  if (plan.shards.empty()) {
    return BrokenRule{where + ".shards",
                      "empty; a table needs shards that tile its rows and columns"};
  }
  double area = 0;
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    const PlanShard& s = plan.shards[i];
    const auto at = [&](const char* key) { return fmt::format("{}.shards[{}].{}", where, i, key); };
    if (s.rows[0] < 0 || s.rows[1] > table.rows || s.rows[0] >= s.rows[1]) {
      return BrokenRule{at("rows"), fmt::format("[{}, {}) is not a range of the {} rows of '{}'",
                                                s.rows[0], s.rows[1], table.rows, table.name)};
    }
    if (s.columns[0] < 0 || s.columns[1] > table.dim || s.columns[0] >= s.columns[1]) {
      return BrokenRule{at("columns"),
                        fmt::format("[{}, {}) is not a range of the {} columns of '{}'",
                                    s.columns[0], s.columns[1], table.dim, table.name)};
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (overlap(s.rows, plan.shards[j].rows) && overlap(s.columns, plan.shards[j].columns)) {
        return BrokenRule{
            where + ".shards",
            fmt::format(
                "shards {} and {} overlap; every row and column belongs to exactly one shard", j,
                i)};
      }
    }
    area += static_cast<double>(s.rows[1] - s.rows[0]) *
            static_cast<double>(s.columns[1] - s.columns[0]);
  }
  const double whole = static_cast<double>(table.rows) * static_cast<double>(table.dim);
  if (area != whole) {
    return BrokenRule{where + ".shards",
                      fmt::format("the shards cover {:.6g} of the {:.6g} elements of '{}'; they "
                                  "must tile rows x columns exactly once",
                                  area, whole, table.name)};
  }
  return std::nullopt;
}

Broken broken_ranks(const PlanShard& s, std::int64_t devices, const std::string& at) {
  const auto broken = [&at](std::string what) {
    return BrokenRule{at + ".groups", std::move(what)};
  };
  if (s.groups.empty()) {
    return broken("empty; name the ranks that hold the shard");
  }
  std::vector<bool> seen(static_cast<std::size_t>(devices), false);
  for (const auto& group : s.groups) {
    if (group.empty()) {
      return broken("a group is empty; name the ranks that hold the shard");
    }
    for (const std::int32_t r : group) {
      if (r < 0 || r >= devices) {
        return broken(fmt::format("rank {} is not one of the {} devices of the job (0 to {})", r,
                                  devices, devices - 1));
      }
      if (seen[static_cast<std::size_t>(r)]) {
        return broken(fmt::format("rank {} is named twice", r));
      }
      seen[static_cast<std::size_t>(r)] = true;
    }
  }
  return std::nullopt;
}

/// Every rank in one group, groups of equal size, ranks in order.
bool partitions(const std::vector<std::vector<std::int32_t>>& groups, std::int64_t devices) {
  std::int32_t next = 0;
  for (const auto& group : groups) {
    if (group.size() != groups.front().size()) {
      return false;
    }
    for (const std::int32_t r : group) {
      if (r != next++) {
        return false;
      }
    }
  }
  return next == devices;
}

bool contiguous(const std::vector<std::int32_t>& ranks) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] != ranks[i - 1] + 1) {
      return false;
    }
  }
  return true;
}

/// Condition on the groups of a kind of sharding; empty if they meet it.
std::string_view groups_needed(const PlanShard& s, std::int64_t devices) {
  const auto size = static_cast<std::int64_t>(s.groups.front().size());
  const bool single = s.groups.size() == 1;
  switch (s.sharding) {
    case ShardingKind::kTableWise:
    case ShardingKind::kColumnWise:
      return single && size == 1 ? "" : "one group with one rank";
    case ShardingKind::kRowWise:
      return partitions(s.groups, devices)
                 ? ""
                 : "one group with all ranks in order, or groups of equal size that together are "
                   "all ranks in order, a copy in each";
    case ShardingKind::kTableRowWise:
      return single && contiguous(s.groups.front()) && devices % size == 0 &&
                     s.groups.front().front() % size == 0
                 ? ""
                 : "one group of consecutive ranks, a whole node (or equal part of one)";
    case ShardingKind::kDataParallel:
      return partitions(s.groups, devices) ? "" : "all ranks in order, as one group or several";
  }
  return "";
}

/// Tier, groups and split of a shard suit its kind of sharding.
Broken broken_kind(const PlanShard& s, std::int64_t devices, const std::string& at) {
  if (s.tier != "hbm" && (s.groups.size() > 1 || s.sharding == ShardingKind::kDataParallel)) {
    return BrokenRule{at + ".tier",
                      fmt::format("'{}', but rows with several copies are updated from dense "
                                  "gradients and stay in device memory; use hbm, or one copy",
                                  s.tier)};
  }
  if (const std::string_view needed = groups_needed(s, devices); !needed.empty()) {
    return BrokenRule{at + ".groups", fmt::format("{} needs {}", name_of(s.sharding), needed)};
  }
  const bool replicated = s.sharding == ShardingKind::kDataParallel;
  if (s.groups.front().size() > 1 && replicated != (s.split == Split::kReplicate)) {
    return BrokenRule{at + ".split", fmt::format("{} needs split {}", name_of(s.sharding),
                                                 replicated ? "replicate" : "block or stripe")};
  }
  return std::nullopt;
}

/// Rows that are found by keys have one place, whole, and no order.
Broken broken_keys(const PlanTable& plan, const EmbeddingTable& table, const std::string& where) {
  if (!table.keyed()) {
    return std::nullopt;
  }
  const PlanShard& s = plan.shards.front();
  if (plan.shards.size() == 1 && s.groups.size() == 1 && s.tier == "hbm" &&
      (s.groups.front().size() == 1 || s.split != Split::kReplicate)) {
    return std::nullopt;
  }
  return BrokenRule{
      where + ".shards",
      fmt::format("ids of '{}' take rows of others (remap {}), so that no two places "
                  "agree on them; use table_wise, row_wise or table_row_wise in hbm",
                  table.name, table.remapped->kind == RowRemap::kLfu ? "lfu" : "lru")};
}

/// Routes inside groups exist once for each size of groups.
Broken broken_group_sizes(const Job& job, const EmbeddingPlan& plan) {
  std::set<std::size_t> all;
  for (const PlanTable& t : plan.tables) {
    for (const PlanShard& s : t.shards) {
      all.insert(s.groups.front().size());
    }
  }
  if (all.size() <= kMostGroupSizes) {
    return std::nullopt;  // whatever their routes
  }
  const LayeredWorkload& w = *job.workload.layered();
  std::set<std::int64_t> sizes;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const ListShares shares = list_shares(job, w.tables[t]);
    for (std::size_t i = 0; i < plan.tables[t].shards.size(); ++i) {
      const PlanShard& s = plan.tables[t].shards[i];
      const EmbeddingRoute route = route_of(s, w.tables[t], job, shares);
      if (is_node_reduce(route) || has_copies(route)) {
        sizes.insert(static_cast<std::int64_t>(s.groups.front().size()));
      }
      if (sizes.size() > kMostGroupSizes) {
        return BrokenRule{
            fmt::format("tables[{}].shards[{}].groups", t, i),
            fmt::format("{} ranks in a group make more than {} sizes of groups in the plan ({}); "
                        "use fewer",
                        s.groups.front().size(), kMostGroupSizes, fmt::join(sizes, ", "))};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<BrokenRule> broken_rule(const Job& job, const EmbeddingPlan& plan) {
  const LayeredWorkload* w = job.workload.layered();
  STEPCAST_CHECK(w != nullptr, "embedding plan of '{}', which is not a DLRM", job.workload.name);
  if (plan.devices != job.devices) {
    return BrokenRule{"devices", fmt::format("the plan is for {} devices, the job has {}",
                                             plan.devices, job.devices)};
  }
  if (plan.tables.size() != w->tables.size()) {
    return BrokenRule{"tables", fmt::format("{} tables, but '{}' has {}", plan.tables.size(),
                                            job.workload.name, w->tables.size())};
  }
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const std::string at = fmt::format("tables[{}]", t);
    const PlanTable& table = plan.tables[t];
    if (table.name != w->tables[t].name) {
      return BrokenRule{at + ".name",
                        fmt::format("'{}', but table {} of '{}' is '{}'; keep the workload's order",
                                    table.name, t, job.workload.name, w->tables[t].name)};
    }
    if (auto broken = broken_tiling(table, w->tables[t], at)) {
      return broken;
    }
    for (std::size_t i = 0; i < table.shards.size(); ++i) {
      const std::string shard = fmt::format("{}.shards[{}]", at, i);
      if (auto broken = broken_ranks(table.shards[i], job.devices, shard)) {
        return broken;
      }
      if (auto broken = broken_kind(table.shards[i], job.devices, shard)) {
        return broken;
      }
    }
    if (auto broken = broken_keys(table, w->tables[t], at)) {
      return broken;
    }
  }
  return broken_group_sizes(job, plan);
}

void check_embedding_plan(const Job& job, const EmbeddingPlan& plan, std::string_view where) {
  if (const auto broken = broken_rule(job, plan)) {
    throw InputError(fmt::format("{}: {}", where, broken->key), broken->what);
  }
}

}  // namespace stepcast::workloads
