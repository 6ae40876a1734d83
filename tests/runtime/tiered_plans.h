#pragma once
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/access/row_order.h"
#include "core/job/job.h"
#include "core/job/plan.h"
#include "core/job/workload.h"

namespace stepcast::runtime::test {

/// Ranks 0 .. devices - 1 in groups of `size`.
inline std::vector<std::vector<std::int32_t>> rank_groups(std::int64_t devices, std::int64_t size) {
  std::vector<std::vector<std::int32_t>> groups;
  for (std::int64_t first = 0; first < devices; first += size) {
    groups.emplace_back(static_cast<std::size_t>(size));
    std::iota(groups.back().begin(), groups.back().end(), static_cast<std::int32_t>(first));
  }
  return groups;
}

/// A plan with one to four row ranges a table, each of any kind: on every rank, a copy a group of
/// one of the sizes, one copy over all ranks, over one group or on one rank; split by blocks or
/// stripes; rows as the workload numbers them, by popularity, or by that of other lookups. Sizes
/// divide the number of ranks.
inline EmbeddingPlan random_tiered_plan(const Job& job, unsigned seed,
                                        const std::vector<std::int64_t>& sizes = {2}) {
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
  const auto size = [&] {
    return sizes.size() == 1 ? sizes.front() : sizes[static_cast<std::size_t>(below(sizes.size()))];
  };
  EmbeddingPlan plan;
  plan.workload = job.workload.name;
  plan.system = job.system.name;
  plan.devices = job.devices;
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    PlanTable& to = plan.tables.emplace_back();
    to.name = t.name;
    to.frequency_order = below(4) > 0;
    if (to.frequency_order && (seed + plan.tables.size()) % 3 == 0) {  // hot rows of other lookups
      to.order = std::make_shared<const RowOrder>(RowOrder::seeded(t.rows, 1000 + seed));
    }
    std::vector<std::int64_t> cuts{0, t.rows};
    for (std::int64_t i = below(4); i > 0; --i) {
      cuts.push_back(1 + below(static_cast<std::size_t>(t.rows - 1)));
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      PlanShard& s = to.shards.emplace_back();
      s.rows = {cuts[i], cuts[i + 1]};
      s.columns = {0, t.dim};
      s.split = below(2) == 0 ? Split::kStripe : Split::kBlock;
      switch (below(5)) {
        case 0:
          s.sharding = ShardingKind::kDataParallel;
          s.split = Split::kReplicate;
          s.groups = rank_groups(job.devices, below(2) == 0 ? 2 : job.devices);
          break;
        case 1:
          s.sharding = ShardingKind::kRowWise;
          s.groups = rank_groups(job.devices, size());
          break;
        case 2:
          s.sharding = ShardingKind::kRowWise;
          s.groups = rank_groups(job.devices, job.devices);
          break;
        case 3: {
          const auto nodes = rank_groups(job.devices, size());
          s.sharding = ShardingKind::kTableRowWise;
          s.groups = {nodes[static_cast<std::size_t>(below(nodes.size()))]};
          break;
        }
        default:
          s.sharding = ShardingKind::kTableWise;
          s.groups = {{static_cast<std::int32_t>(below(static_cast<std::size_t>(job.devices)))}};
          s.split = Split::kBlock;
      }
    }
  }
  return plan;
}

/// Every table in as many row ranges as there are sizes: one copy in each group of the first size,
/// of the second, ... ; 1 is on every rank, the number of ranks one copy. Stripes, by popularity.
inline EmbeddingPlan nested_plan(const Job& job, const std::vector<std::int64_t>& sizes) {
  EmbeddingPlan plan;
  plan.workload = job.workload.name;
  plan.system = job.system.name;
  plan.devices = job.devices;
  const auto levels = static_cast<std::int64_t>(sizes.size());
  for (const EmbeddingTable& t : job.workload.layered()->tables) {
    PlanTable& to = plan.tables.emplace_back();
    to.name = t.name;
    to.frequency_order = true;
    for (std::int64_t i = 0; i < levels; ++i) {
      PlanShard& s = to.shards.emplace_back();
      s.rows = {i * t.rows / levels, (i + 1) * t.rows / levels};
      s.columns = {0, t.dim};
      const bool everywhere = sizes[static_cast<std::size_t>(i)] == 1;
      s.sharding = everywhere ? ShardingKind::kDataParallel : ShardingKind::kRowWise;
      s.split = everywhere ? Split::kReplicate : Split::kStripe;
      s.groups =
          rank_groups(job.devices, everywhere ? job.devices : sizes[static_cast<std::size_t>(i)]);
    }
  }
  return plan;
}

/// Moves about three in four of the shards that may leave device memory to the tier ddr or ssd,
/// some without a cache, some with one of up to all their rows.
inline void move_to_slow_tiers(EmbeddingPlan& plan, unsigned seed,
                               const std::vector<std::string>& tiers = {"ddr", "ssd"}) {
  std::mt19937 random(seed);
  for (PlanTable& table : plan.tables) {
    for (PlanShard& s : table.shards) {
      if (s.groups.size() > 1 || s.sharding == ShardingKind::kDataParallel || random() % 4 == 0) {
        continue;
      }
      s.tier = tiers[random() % tiers.size()];
      const auto rows = static_cast<double>(s.rows[1] - s.rows[0]);
      const auto columns = static_cast<double>(s.columns[1] - s.columns[0]);
      s.cache_bytes = static_cast<double>(random() % 4) / 3 * rows * (4 * columns + 36);
      s.cache_policy = seed % 2 == 0 ? RowCachePolicy::kLru : RowCachePolicy::kLfu;
    }
  }
}

}  // namespace stepcast::runtime::test
