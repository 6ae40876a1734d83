#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "core/workload.h"

namespace stepcast::planner::internal {

/// Which members of a row split the most popular rows of a table fall to, in the workload's row
/// order: the share of lookups of each member. Empty where rows count as evenly spread, which is
/// how workloads see tables without skew and splits of more than 16 devices.
struct HotRows {
  Split split = Split::kBlock;  ///< the one whose busiest member has least
  std::vector<double> mass;
};
/// `split`: take this one.
HotRows hot_rows(const EmbeddingTable& table, std::int64_t members, std::int64_t devices,
                 std::optional<Split> split = std::nullopt);

}  // namespace stepcast::planner::internal
