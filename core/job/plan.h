#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/access/row_traffic.h"
#include "core/units.h"

namespace stepcast {

class RowOrder;  // core/access/row_order.h

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
  double cache_bytes = 0;  ///< on each rank, in its own memory, for rows of a slower tier
  RowCachePolicy cache_policy = RowCachePolicy::kLru;
};

/// Limits on what a plan may do with one table; an empty member restricts nothing.
struct TableConstraint {
  std::string table;
  std::vector<ShardingKind> shardings;
  std::vector<std::string> tiers;  ///< that its rows may live in
  std::optional<bool> cached;      ///< in a slower tier: with a cache in front, or without
  std::int64_t narrowest = 0;      ///< columns of a column part, at least
};

struct PlanTable {
  std::string name;
  bool frequency_order = false;  ///< rows in order of popularity; else as the workload numbers them
  std::vector<PlanShard> shards;
  /// With `frequency_order`: which rows are hot, by id. None: those of the job's own law.
  std::shared_ptr<const RowOrder> order = nullptr;
  std::string order_file = {};  ///< the recording that `order` was taken from, if any
  /// Rows before the last range: those whose ids matter.
  [[nodiscard]] std::int64_t hot_rows() const {
    std::int64_t last = 0;
    for (const PlanShard& s : shards) {
      last = std::max(last, s.rows[0]);
    }
    return last;
  }
};

/// A setting of a job by the dotted path that `--set` takes, and its value as text.
struct PlanSetting {
  std::string key, value;
  friend bool operator==(const PlanSetting&, const PlanSetting&) = default;
};

/// Bytes that a rank needs of a memory tier under a plan, by purpose, and what it has.
struct LedgerLine {
  std::int32_t rank = 0;
  std::string tier = "hbm";
  double weights = 0, optimizer = 0, gradients = 0, cache = 0, remap = 0;
  double buffers = 0;  ///< inputs, outputs and synchronisation
  double dense = 0;    ///< the dense model and what libraries reserve
  double capacity = 0;
  [[nodiscard]] double total() const {
    return weights + optimizer + gradients + cache + remap + buffers + dense;
  }
};

/// Place of every row and column of every embedding table (CONTRACT section 5). What a planner
/// knows about it stays 0 or empty in plans made by hand.
struct EmbeddingPlan {
  std::string workload, system;
  std::int64_t devices = 1;
  std::int64_t sync_interval = 0;     ///< Job::sync_interval it was made for; 0: it does not say
  bool dedup = false;                 ///< Job::embedding_dedup it was made for
  std::vector<PlanSetting> made_for;  ///< settings that predicted_step rests on (plan_settings.h)
  std::vector<PlanTable> tables;
  double predicted_step = 0;  ///< seconds
  double lower_bound = 0;     ///< seconds: no plan of the searched space is faster
  double gap = 0;             ///< of the part that plans decide, as a fraction
  std::vector<LedgerLine> ledger;
};

}  // namespace stepcast
