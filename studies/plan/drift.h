#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "planner/embedding/adapt_plan.h"
#include "studies/plan/replan.h"

namespace stepcast::studies {

/// Change of one table's lookups since its plan was made.
struct TableDrift {
  std::string name;
  /// Hottest rows that are followed: the plan's first range where it splits the table by
  /// popularity, else one per cent.
  std::int64_t hot_rows = 0;
  bool planned_range = false;                  ///< it is the plan's
  double covered_then = 0, covered_now = 0;    ///< share of lookups that go to those very rows
  double distinct_then = 0, distinct_now = 0;  ///< rows in a global batch
  /// The rows themselves could be followed. Where not (a histogram carries no ids), the rows that
  /// are hot now are taken to be the same.
  bool followed = true;
};

/// Cost under one access of a plan made for another, and whether a new plan pays. Two causes can
/// make a new plan faster, and only one of them is drift: the search may also find a better plan
/// for the old access than the one in use.
struct DriftReport {
  double step_then = 0, step_now = 0;  ///< seconds: the same plan under both
  double searched_then = 0;            ///< seconds: a new plan under the access of then
  std::vector<TableDrift> tables;      ///< of both jobs, the one that drifted most first
  planner::AdaptedPlan adapted;        ///< the plan carried over, where tables or devices differ
  ReplanReport replan;                 ///< under the access of now
  /// Seconds per step that a new plan saves now, and that it would have saved without drift.
  [[nodiscard]] double saved() const { return step_now - replan.plan.predicted_step; }
  [[nodiscard]] double saved_by_searching() const { return step_then - searched_then; }
};

/// A plan's row tiers keep the rows that were hot when it was made (PlanTable::order), so its step
/// now is that of the stale order. Rows are followed by id: recorded lookups are counted; of a law
/// that is drawn with a seed, 200,000 draws are (standard error at most 0.12 % of lookups), unless
/// both laws share the seed, where it is exact. `then` has the plan (embedding.plan). Where `now`
/// has other tables, rows or devices the plan is carried over (planner::adapted_plan), and a law
/// with the seed that it had keeps its hot rows. `request` says which new plans are in reach, under
/// both accesses. Errors: InputError.
DriftReport drift(const Job& then, const Job& now, const ReplanRequest& request = {});

}  // namespace stepcast::studies
