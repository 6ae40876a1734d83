#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/job/plan.h"

namespace stepcast {

/// The rows that one member of a group holds: first, first + stride, ...
struct HeldRows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t stride = 1;
};

/// Rows [first_row, first_row + rows) of a table, split over the members of a group: the one place
/// that knows the rule. Block: member i holds the i-th block of ceil(rows / members) rows; the last
/// members may hold fewer or none. Stripe: rows i, i + members, ... Replicate: all rows.
struct RowSplit {
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t table_rows = 0;
  Split split = Split::kBlock;
  std::int64_t members = 1;
  bool frequency_order = false;  ///< rows stand in order of popularity
  bool own_order = false;        ///< in one that a plan brings; the hottest are known by position
  /// Ids go to the member that owns their row.
  [[nodiscard]] bool splits() const { return members > 1 && split != Split::kReplicate; }
  /// Rows per member of a block split: ceil(rows / members).
  [[nodiscard]] std::int64_t block() const { return (rows + members - 1) / members; }
  /// Rows that one member holds, numbered as the table's.
  [[nodiscard]] HeldRows part(std::int64_t position) const;
  [[nodiscard]] std::int64_t held(std::int64_t position) const { return part(position).rows; }
  /// The member that holds row `first_row + offset`.
  [[nodiscard]] std::int64_t owner(std::int64_t offset) const {
    return !splits() ? 0 : split == Split::kStripe ? offset % members : offset / block();
  }
};

/// A shard of a plan over a group of `members` ranks.
RowSplit row_split(const PlanShard& shard, std::int64_t members);

/// How looked-up values reach the ranks whose samples need them. Routes inside groups of ranks
/// exist once for each size of groups in a plan (EmbeddingPlacement::group_sizes): `at_level`.
enum class EmbeddingRoute : std::uint8_t {
  kReplicated,  ///< data-parallel: local lookups, dense gradient, all-reduce
  kLocal,       ///< the only rank holds it: local lookups, fused optimizer
  kExchange,    ///< table- or column-wise, pooled: all-to-all-v of pooled rows
  kReduce,      ///< row-wise over all ranks, pooled: reduce-scatter of partial sums, all-gather of
                ///< gradients
  kNodeReduce,  ///< row-wise inside a node, pooled: reduce-scatter in the node, all-to-all-v across
                ///< nodes
  kSequence,    ///< rows leave unpooled: all-to-all-v, pooled by the receiver; and pooled rows of
                ///< distinct lists, copied to the samples that have them
  kGroupReduce,    ///< one copy a group of ranks, pooled: as kReduce inside the group; gradients of
                   ///< the copies all-reduced across groups
  kGroupSequence,  ///< unpooled, as kSequence inside the group
};
constexpr std::size_t kRouteKinds = 8;
/// Sizes of groups that one plan may have: a rack, a pod, ... between one rank and all.
constexpr std::size_t kMostGroupSizes = 4;
constexpr std::size_t kRoutes = kRouteKinds * kMostGroupSizes;
constexpr EmbeddingRoute at_level(EmbeddingRoute kind, std::size_t level) {
  return static_cast<EmbeddingRoute>(static_cast<std::size_t>(kind) + kRouteKinds * level);
}
/// Which of the plan's sizes the groups of a route have.
constexpr std::size_t level_of(EmbeddingRoute r) {
  return static_cast<std::size_t>(r) / kRouteKinds;
}
constexpr EmbeddingRoute kind_of(EmbeddingRoute r) {
  return static_cast<EmbeddingRoute>(static_cast<std::size_t>(r) % kRouteKinds);
}
/// Every route at every level, ascending.
constexpr std::array<EmbeddingRoute, kRoutes> kAllRoutes = [] {
  std::array<EmbeddingRoute, kRoutes> all{};
  for (std::size_t i = 0; i < kRoutes; ++i) {
    all[i] = static_cast<EmbeddingRoute>(i);
  }
  return all;
}();

/// "group_reduce", at the second level "group_reduce_2".
std::string name_of(EmbeddingRoute route);
/// Lookups of the local batch need no exchange.
inline bool is_local(EmbeddingRoute r) {
  return r == EmbeddingRoute::kReplicated || r == EmbeddingRoute::kLocal;
}

/// Row-wise inside a group, pooled, with one copy.
inline bool is_node_reduce(EmbeddingRoute r) { return kind_of(r) == EmbeddingRoute::kNodeReduce; }
/// One copy in each of several groups of ranks: a rank asks its own group, and the gradients of
/// the copies are summed across groups.
inline bool has_copies(EmbeddingRoute r) {
  return kind_of(r) == EmbeddingRoute::kGroupReduce || kind_of(r) == EmbeddingRoute::kGroupSequence;
}
/// Rows travel as a list, unpooled or one for each distinct list of ids.
inline bool is_sequence(EmbeddingRoute r) {
  return r == EmbeddingRoute::kSequence || kind_of(r) == EmbeddingRoute::kGroupSequence;
}
/// Updated by the dense optimizer after an all-reduce, not by a fused backward.
inline bool is_synchronised(EmbeddingRoute r) {
  return r == EmbeddingRoute::kReplicated || has_copies(r);
}

/// One shard of a plan: a range of a table's rows and columns, with one copy in each of one or more
/// groups of ranks.
struct EmbeddingSlice {
  std::int32_t table = 0;
  std::int64_t first_column = 0;
  std::int64_t dim = 0;       ///< of its rows
  std::int64_t features = 1;  ///< that look them up, each with `dim` columns of the interaction
  /// Offset of its first column, for the first feature, in the concatenated columns of all tables;
  /// other features follow `feature_pitch` columns apart.
  std::int64_t feature_column = 0;
  std::int64_t feature_pitch = 0;
  EmbeddingRoute route = EmbeddingRoute::kExchange;
  Split split = Split::kBlock;
  bool frequency_order = false;
  /// With `frequency_order`: the plan's own order of rows, where the job's law does not follow it.
  std::shared_ptr<const RowOrder> order = nullptr;
  std::int64_t hot_rows = 0;        ///< with `order`: rows of the table before its last range
  std::vector<std::int32_t> ranks;  ///< all holders, ascending, contiguous: group by group
  std::int64_t copies = 1;          ///< groups of equal size; then all ranks are holders
  std::int64_t first_row = 0;       ///< of the range, in the table's row order
  std::int64_t rows = 0;            ///< of the range
  std::int64_t table_rows = 0;
  std::string tier = "hbm";  ///< where the rows live
  double cache_bytes = 0;    ///< for rows of a slower tier, in each holder's own memory
  RowCachePolicy cache_policy = RowCachePolicy::kLru;
  /// For a pooled table whose distinct lists are looked up, pooled and sent once (RecD, arXiv
  /// 2211.05239): their expected number and that of their ids, as shares of those of all samples.
  double list_share = 1, id_share = 1;
  [[nodiscard]] bool pools_lists_once() const { return list_share < 1; }
  [[nodiscard]] bool in_slow_tier() const { return tier != "hbm"; }
  /// Columns of what was looked up and pooled.
  [[nodiscard]] std::int64_t width() const { return dim * features; }
  /// Ranks of one group.
  [[nodiscard]] std::int64_t members() const {
    return static_cast<std::int64_t>(ranks.size()) / copies;
  }
  /// Ids whose owner depends on the row.
  [[nodiscard]] bool row_split() const { return members() > 1 && split != Split::kReplicate; }
  /// How its rows are split over the members of one group.
  [[nodiscard]] RowSplit row_rule() const {
    return {.first_row = first_row,
            .rows = rows,
            .table_rows = table_rows,
            .split = split,
            .members = members()};
  }
  /// Holds part of the table's rows only.
  [[nodiscard]] bool row_range() const { return rows < table_rows; }
  /// A bag's rows may lie in several places.
  [[nodiscard]] bool splits_bags() const { return row_split() || row_range(); }
  /// Rows stand in order of popularity, so ids are looked up in a remap table before they travel.
  [[nodiscard]] bool remapped() const { return frequency_order && splits_bags(); }
  /// Place of a holder in its group.
  [[nodiscard]] std::int64_t position(std::int32_t rank) const {
    return (rank - ranks.front()) % members();
  }
  /// Whether lookups of `rank` go to the group of `holder`.
  [[nodiscard]] bool serves(std::int32_t holder, std::int32_t rank) const {
    return copies == 1 || holder / members() == rank / members();
  }
};

/// The rows of a slice that one rank holds.
HeldRows held_rows(const EmbeddingSlice& slice, std::int32_t rank);

/// Which rows and columns of which table are held where, in which tier, in how many copies, and how
/// what is looked up reaches the samples. The order of slices in `held` is the order
/// in which ranks lay out ids, pooled columns and shards: by route, then by (table, column, row).
struct EmbeddingPlacement {
  std::int64_t devices = 1;
  std::int64_t node = 1;  ///< ranks that share a tower
  /// Sizes of the groups whose members split rows or share a copy, ascending: by level of routes.
  std::vector<std::int64_t> group_sizes;
  std::int64_t columns = 0;  ///< of all tables side by side
  std::vector<EmbeddingSlice> slices;
  std::vector<std::vector<std::int32_t>> held;  ///< per rank
  std::bitset<kRoutes> used;                    ///< by some slice

  /// Slices of one route that `rank` holds.
  [[nodiscard]] std::span<const std::int32_t> held_by(std::int32_t rank, EmbeddingRoute route) const;
  /// Columns of those slices together.
  [[nodiscard]] std::int64_t width(std::int32_t rank, EmbeddingRoute route) const;
  [[nodiscard]] bool uses(EmbeddingRoute route) const {
    return used[static_cast<std::size_t>(route)];
  }
  /// Ranks of a group of a route that is inside groups.
  [[nodiscard]] std::int64_t group_of(EmbeddingRoute route) const {
    return group_sizes.at(level_of(route));
  }
  /// Ranks whose lookups reach the shards of a route that `rank` holds: [first, end).
  [[nodiscard]] std::array<std::int32_t, 2> peers(EmbeddingRoute route, std::int32_t rank) const;
  /// Whether ids travel at all.
  [[nodiscard]] bool exchanges_ids() const;
};

}  // namespace stepcast
