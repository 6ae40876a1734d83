#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::workloads {

// Parts of plans that are made by a rule.

/// A plan without shards yet, tables in the workload's order.
EmbeddingPlan empty_plan(const Job& job);

/// `count` ranks from `first` on.
std::vector<std::int32_t> rank_range(std::int64_t first, std::int64_t count);

/// All ranks in order, in groups of `size`, which divides their number.
std::vector<std::vector<std::int32_t>> groups_of(std::int64_t devices, std::int64_t size);

/// All rows of some columns, on consecutive ranks.
PlanShard shard_on(const EmbeddingTable& table, ShardingKind kind, std::int64_t first,
                   std::int64_t count, std::array<std::int64_t, 2> columns);
/// All rows and columns.
PlanShard shard_on(const EmbeddingTable& table, ShardingKind kind, std::int64_t first,
                   std::int64_t count = 1);

/// Loads of equal places (ranks or nodes) while tables are put on them.
class Balance {
 public:
  Balance(std::int64_t places, double capacity)
      : load_(static_cast<std::size_t>(places)), free_(load_.size(), capacity) {}

  /// The least loaded place with room; without room anywhere, the one with most room. Skips
  /// `taken`.
  std::int64_t put(double cost, double bytes, const std::vector<std::int64_t>& taken = {});
  void put_everywhere(double cost, double bytes);

 private:
  [[nodiscard]] bool better(std::size_t a, std::size_t b, double bytes) const;
  std::vector<double> load_;
  std::vector<double> free_;
};

}  // namespace stepcast::workloads
