#pragma once
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"

namespace stepcast::planner {

/// Whole tables on single ranks. `order` lists the tables in the order they are placed; each goes
/// to the rank of least summed cost that still has room (most room where none has).
EmbeddingPlan place_whole_tables(const Job& job, const std::vector<std::size_t>& order,
                                 const std::vector<double>& cost);

/// Whole tables, most costly first.
struct WholeTableRule {
  std::string_view name;
  double (*cost)(const Job& job, const EmbeddingTable& table);
  bool rival = false;  ///< Baseline::rival
  [[nodiscard]] EmbeddingPlan plan(const Job& job) const;
};
/// Round robin, and greedy by dimension, by lookups, by lookups and size, by bytes.
const std::vector<WholeTableRule>& whole_table_rules();

}  // namespace stepcast::planner
