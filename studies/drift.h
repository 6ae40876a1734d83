#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/job.h"
#include "studies/replan.h"

namespace stepcast::studies {

/// What became of one table's lookups since its plan was made.
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

/// What a plan made for one access costs under another, and whether a new plan pays.
struct DriftReport {
  double step_then = 0, step_now = 0;  ///< seconds: the same plan under both
  std::vector<TableDrift> tables;      ///< the one that drifted most first
  ReplanReport replan;                 ///< under the access of now, any number of bytes
};

/// Rows are followed by id: recorded lookups are counted; of a law that is drawn with a seed,
/// 200,000 draws are (standard error at most 0.12 % of lookups), unless both laws share the seed,
/// where it is exact. Both jobs must have the same tables; `then` has the plan (embedding.plan).
/// Errors: InputError.
DriftReport drift(const Job& then, const Job& now, std::uint64_t seed = 1);

}  // namespace stepcast::studies
