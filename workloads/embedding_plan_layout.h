#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "core/plan.h"

namespace stepcast::workloads {

/// How looked-up values reach the ranks whose samples need them.
enum class EmbeddingRoute : std::uint8_t {
  kReplicated,  ///< data-parallel: local lookups, dense gradient, all-reduce
  kLocal,       ///< the only rank holds it: local lookups, fused optimizer
  kExchange,    ///< table- or column-wise, pooled: all-to-all-v of pooled rows
  kReduce,      ///< row-wise over all ranks, pooled: reduce-scatter of partial sums, all-gather of
                ///< gradients
  kNodeReduce,  ///< row-wise inside a node, pooled: reduce-scatter in the node, all-to-all-v across
                ///< nodes
  kSequence,    ///< rows leave unpooled: all-to-all-v, pooled by the receiver
  kGroupReduce,    ///< one copy a group of ranks, pooled: as kReduce inside the group; gradients of
                   ///< the copies all-reduced across groups
  kGroupSequence,  ///< likewise unpooled, as kSequence inside the group
};
constexpr std::size_t kRoutes = 8;
constexpr std::array<EmbeddingRoute, kRoutes> kAllRoutes{
    EmbeddingRoute::kReplicated,  EmbeddingRoute::kLocal,        EmbeddingRoute::kExchange,
    EmbeddingRoute::kReduce,      EmbeddingRoute::kNodeReduce,   EmbeddingRoute::kSequence,
    EmbeddingRoute::kGroupReduce, EmbeddingRoute::kGroupSequence};

std::string_view name_of(EmbeddingRoute route);
/// Lookups of the local batch need no exchange.
inline bool is_local(EmbeddingRoute r) {
  return r == EmbeddingRoute::kReplicated || r == EmbeddingRoute::kLocal;
}

/// One copy in each of several groups of ranks: a rank asks its own group, and the gradients of
/// the copies are summed across groups.
inline bool has_copies(EmbeddingRoute r) {
  return r == EmbeddingRoute::kGroupReduce || r == EmbeddingRoute::kGroupSequence;
}
/// Rows leave unpooled.
inline bool is_sequence(EmbeddingRoute r) {
  return r == EmbeddingRoute::kSequence || r == EmbeddingRoute::kGroupSequence;
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
  std::int64_t dim = 0;
  std::int64_t feature_column =
      0;  ///< of its first column among the columns of all tables side by side
  EmbeddingRoute route = EmbeddingRoute::kExchange;
  Split split = Split::kBlock;
  bool frequency_order = false;
  std::vector<std::int32_t> ranks;  ///< all holders, ascending, contiguous: group by group
  std::int64_t copies = 1;          ///< groups of equal size; then all ranks are holders
  std::int64_t first_row = 0;       ///< of the range, in the table's row order
  std::int64_t rows = 0;            ///< of the range
  std::int64_t table_rows = 0;
  std::string tier = "hbm";  ///< where the rows live
  double cache_bytes = 0;    ///< for rows of a slower tier, in each holder's own memory
  [[nodiscard]] bool in_slow_tier() const { return tier != "hbm"; }
  /// Ranks of one group.
  [[nodiscard]] std::int64_t members() const {
    return static_cast<std::int64_t>(ranks.size()) / copies;
  }
  /// Ids whose owner depends on the row.
  [[nodiscard]] bool row_split() const { return members() > 1 && split != Split::kReplicate; }
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
  /// Rows per member of a block split: ceil(rows / members).
  [[nodiscard]] std::int64_t block() const;
};

/// The rows of a slice that one rank holds: first, first + stride, ...
struct HeldRows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t stride = 1;
};
HeldRows held_rows(const EmbeddingSlice& slice, std::int32_t rank);

/// A plan as the graph builder and the runtime read it. The order of slices in `held` is the order
/// in which ranks lay out ids, pooled columns and shards: by route, then by (table, column, row).
struct EmbeddingLayout {
  std::int64_t devices = 1;
  std::int64_t node = 1;     ///< ranks of a row split inside nodes
  std::int64_t group = 1;    ///< ranks that share a copy, where shards have several
  std::int64_t columns = 0;  ///< of all tables side by side
  std::vector<EmbeddingSlice> slices;
  std::vector<std::vector<std::int32_t>> held;  ///< per rank

  /// Slices of one route that `rank` holds.
  [[nodiscard]] std::vector<std::int32_t> held_by(std::int32_t rank, EmbeddingRoute route) const;
  /// Columns of those slices together.
  [[nodiscard]] std::int64_t width(std::int32_t rank, EmbeddingRoute route) const;
  [[nodiscard]] bool uses(EmbeddingRoute route) const;
  /// Ranks whose lookups reach the shards of a route that `rank` holds: [first, end).
  [[nodiscard]] std::array<std::int32_t, 2> peers(EmbeddingRoute route, std::int32_t rank) const;
  /// Whether ids travel at all.
  [[nodiscard]] bool exchanges_ids() const;
};

/// The layout of a job's plan. Errors: InputError as check_embedding_plan, and where groups of more
/// than one size would share communicators.
EmbeddingLayout embedding_layout(const Job& job);

}  // namespace stepcast::workloads
