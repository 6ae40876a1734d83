#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/numbers.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/route_prices.h"
#include "planner/embedding/plan_space.h"

namespace stepcast::planner::internal {

/// A table of a job and the prices that its options are made from.
class PricedTable {
 protected:
  PricedTable(const Job& job, std::size_t table, const EmbeddingPrices& prices,
              const RoutePrices& routes)
      : job_(job),
        t_(table),
        table_(job.workload.layered()->tables[table]),
        prices_(prices),
        routes_(routes) {}

  [[nodiscard]] bool unpooled() const { return table_.mode == PoolingMode::kSequence; }

  /// Share of the table's lookups that travel, and are looked up by their holder: with deduplicated
  /// ids a rank asks once for each distinct row of its batch.
  [[nodiscard]] double travelling() const {
    if (!unpooled() || !job_.embedding_dedup) {
      return 1;
    }
    const double lookups = real(job_.batch.global) / real(job_.devices) * table_.pooling;
    const double repeats =
        table_.session ? dedup_factor(table_.session->samples, table_.session->keep) : 1;
    const Access law = table_.access ? *table_.access : Access::uniform(table_.rows);
    return std::min(1.0, law.unique(lookups / repeats).value / lookups);
  }

  const Job& job_;
  std::size_t t_;
  const EmbeddingTable& table_;
  const EmbeddingPrices& prices_;
  const RoutePrices& routes_;
};

/// The same with the law of its accesses, and the options made.
class OptionsOfTable : protected PricedTable {
 public:
  using Made = std::vector<std::pair<PlacementOption, OptionMeaning>>;

 protected:
  OptionsOfTable(const Job& job, std::size_t table, const EmbeddingPrices& prices,
                 const RoutePrices& routes)
      : PricedTable(job, table, prices, routes),
        access_(table_.access ? *table_.access : Access::uniform(table_.rows)),
        global_(real(job.batch.global)),
        lookups_(global_ * table_.pooling) {}

  Access access_;
  double global_;   ///< samples
  double lookups_;  ///< of a step, over all ranks
  Made made_;
};

}  // namespace stepcast::planner::internal
