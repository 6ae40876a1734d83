#pragma once
#include <array>
#include <cstdint>
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
};
constexpr std::size_t kRoutes = 6;
constexpr std::array<EmbeddingRoute, kRoutes> kAllRoutes{
    EmbeddingRoute::kReplicated, EmbeddingRoute::kLocal,      EmbeddingRoute::kExchange,
    EmbeddingRoute::kReduce,     EmbeddingRoute::kNodeReduce, EmbeddingRoute::kSequence};

std::string_view name_of(EmbeddingRoute route);
/// Lookups of the local batch need no exchange.
inline bool is_local(EmbeddingRoute r) {
  return r == EmbeddingRoute::kReplicated || r == EmbeddingRoute::kLocal;
}

/// One shard of a plan: a column range of a table, all rows, over one list of ranks.
struct EmbeddingSlice {
  std::int32_t table = 0;
  std::int64_t first_column = 0;
  std::int64_t dim = 0;
  std::int64_t feature_column =
      0;  ///< of its first column among the columns of all tables side by side
  EmbeddingRoute route = EmbeddingRoute::kExchange;
  Split split = Split::kBlock;
  bool frequency_order = false;
  std::vector<std::int32_t> ranks;  ///< ascending, contiguous
  std::int64_t table_rows = 0;
  /// Ids whose owner depends on the row.
  [[nodiscard]] bool row_split() const { return ranks.size() > 1 && split != Split::kReplicate; }
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
/// in which ranks lay out ids, pooled columns and shards: by route, then by (table, column).
struct EmbeddingLayout {
  std::int64_t devices = 1;
  std::int64_t node = 1;     ///< ranks of a row split inside nodes
  std::int64_t columns = 0;  ///< of all tables side by side
  std::vector<EmbeddingSlice> slices;
  std::vector<std::vector<std::int32_t>> held;  ///< per rank

  /// Slices of one route that `rank` holds.
  [[nodiscard]] std::vector<std::int32_t> held_by(std::int32_t rank, EmbeddingRoute route) const;
  /// Columns of those slices together.
  [[nodiscard]] std::int64_t width(std::int32_t rank, EmbeddingRoute route) const;
  [[nodiscard]] bool uses(EmbeddingRoute route) const;
  /// Whether ids travel at all.
  [[nodiscard]] bool exchanges_ids() const;
};

/// The layout of a job's plan. Errors: InputError as check_embedding_plan, and for shards that hold
/// part of a table's rows only.
EmbeddingLayout embedding_layout(const Job& job);

}  // namespace stepcast::workloads
