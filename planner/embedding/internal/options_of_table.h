#pragma once
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
