#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/units.h"

namespace stepcast {

enum class ShardingKind : std::uint8_t {
  kTableWise,
  kRowWise,
  kColumnWise,
  kTableRowWise,
  kDataParallel
};
enum class Split : std::uint8_t { kReplicate, kBlock, kStripe };
std::string_view name_of(ShardingKind kind);
std::optional<ShardingKind> sharding_named(std::string_view name);

/// A rectangle rows x columns of a table (half-open, in the table's row order) and the ranks that
/// hold it. Each group holds one full copy: `replicate` on every member, `block` ceil(rows / n)
/// rows each, `stripe` row mod n.
struct PlanShard {
  std::array<std::int64_t, 2> rows{};
  std::array<std::int64_t, 2> columns{};
  ShardingKind sharding = ShardingKind::kTableWise;
  std::string tier = "hbm";
  std::vector<std::vector<std::int32_t>> groups;
  Split split = Split::kBlock;
};

struct PlanTable {
  std::string name;
  bool frequency_order = false;  ///< rows in order of popularity; else as the workload numbers them
  std::vector<PlanShard> shards;
};

/// Where every row and column of every embedding table lives (CONTRACT section 5).
struct EmbeddingPlan {
  std::string workload, system;
  std::int64_t devices = 1;
  std::vector<PlanTable> tables;
};

}  // namespace stepcast
