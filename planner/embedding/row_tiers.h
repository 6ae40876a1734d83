#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/access/access.h"

namespace stepcast::planner {

/// Cost of one row at one replication level, as a function of its expected accesses per global
/// batch c:   cost = per_access * u(c) + per_row,   memory = access_memory * u(c) + memory.
/// Levels go from many copies to one: per_access and access_memory rise, per_row and memory fall.
struct RowLevel {
  double per_access = 0;     ///< seconds (or bytes) per access, forward and backward
  double per_row = 0;        ///< sync and update, whether accessed or not
  double memory = 0;         ///< bytes of a row on each rank
  double access_memory = 0;  ///< bytes of buffers on each rank for every access that is exchanged
};

/// How accesses of a row count for the exchange.
struct AccessCounting {
  /// 0: each access moves the row. W: ids are deduplicated on each of W ranks, u(c) = W (1 -
  /// exp(-c / W)), the expected ranks that touch the row.
  double dedup_over = 0;
  [[nodiscard]] double u(double c) const;
  [[nodiscard]] double inverse(double u) const;  ///< infinity where u(c) cannot reach it
};

/// Thresholds in expected accesses: a row belongs to the first level i with c > above[i]; the last
/// level takes the rest. The lower envelope of the levels' cost lines at memory price `lambda`
/// (cost per byte on each rank).
std::vector<double> level_thresholds(std::span<const RowLevel> levels, const AccessCounting& count,
                                     double lambda);

/// Rows of a table by popularity: level i holds ranks [ends[i-1], ends[i]).
struct RowTierCut {
  std::vector<std::int64_t> ends;
  std::vector<double> accesses;  ///< share of the lookups of each level
};

/// Levels of a table: one copy of a level's rows for each group of so many ranks.
struct TierCut {
  RowTierCut rows;
  std::vector<std::int64_t> groups;
  std::vector<double> touches;  ///< as RowTierCost
};

/// Cuts a table's popularity order at thresholds of expected accesses per global batch of
/// `lookups`. O(levels log rows) for laws, O(bins) for histograms. Source: planner reference 1.3;
/// levels follow FlexShard (arXiv 2301.02959).
RowTierCut cut_rows(const Access& access, double lookups, std::span<const double> thresholds);

/// Cost of a cut table: sum over levels of per_access * u(accesses) + per_row * rows; bytes per
/// rank as well. With dedup the level's distinct touches are summed over the law.
struct RowTierCost {
  double cost = 0;
  double memory = 0;
  std::vector<double> touches;  ///< sum of u(c) by level
};
RowTierCost cost_of(const Access& access, double lookups, const RowTierCut& cut,
                    std::span<const RowLevel> levels, const AccessCounting& count);

}  // namespace stepcast::planner
