#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/migration.h"

namespace stepcast::studies {

/// How two embedding plans of a job differ.
struct PlanDifference {
  planner::Migration migration;  ///< from the first to the second
  /// Tables that are placed otherwise, those that move most first.
  struct Table {
    std::string name, before, after;
    std::int64_t bytes = 0;
  };
  std::vector<Table> tables;
  /// Bytes that a rank needs of a tier, before and after; only where they differ.
  struct Memory {
    std::int32_t rank = 0;
    std::string tier;
    double before = 0, after = 0, capacity = 0;
  };
  std::vector<Memory> memory;
};

/// Errors: InputError as planner::migration_between.
PlanDifference plan_difference(const Job& job, const EmbeddingPlan& before,
                               const EmbeddingPlan& after);

/// A table's placement in a few words: "row_wise over 16", "column_wise x2 on 3, 5".
std::string placement_text(const PlanTable& table);

}  // namespace stepcast::studies
