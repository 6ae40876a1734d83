#pragma once
#include <optional>
#include <vector>

#include "core/job/job.h"
#include "planner/embedding/internal/options_of_table.h"
#include "planner/embedding/shard_bytes.h"
#include "workloads/embedding_plan/plan_layout.h"

namespace stepcast::planner::internal {

/// Prices the options of one table that keep its rows in one order and one memory: a copy on every
/// rank, columns, rows split over groups of ranks.
class WholeTableOptions : private PricedTable {
 public:
  /// `row_split`: of rows split over a group; none: of blocks and stripes the more even one.
  WholeTableOptions(const Job& job, std::size_t table, const EmbeddingPrices& prices,
                    const RoutePrices& routes, std::optional<Split> row_split);

  [[nodiscard]] PlacementOption replicated() const;
  /// All columns on one rank, or equal parts of them on several.
  [[nodiscard]] PlacementOption columns(std::int64_t parts) const;

  struct SplitRows {
    PlacementOption option;
    Split split = Split::kBlock;  ///< inside a group
  };
  /// Rows in equal `blocks`, each split over a group of ranks of its own.
  [[nodiscard]] SplitRows split_rows(std::int64_t group, std::int64_t blocks = 1) const;

 private:
  [[nodiscard]] workloads::ListShares lists_over(std::int64_t members) const;
  void set_bytes(PlacementOption& o, const HeldPiece& piece, double share = 1) const;
  void add_route(PlacementOption& o, const HeldPiece& piece) const;

  std::optional<Split> row_split_;
  workloads::ListShares lists_;
};

}  // namespace stepcast::planner::internal
