#pragma once
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/placement.h"
#include "planner/embedding/row_tiers.h"

namespace stepcast::planner {

/// Meaning of an option of the placement problem for the table's rows and columns.
struct OptionMeaning {
  ShardingKind kind = ShardingKind::kTableWise;
  std::int64_t column_parts = 1;
  std::int64_t row_blocks = 1;  ///< equal blocks of rows, each on a group of its own
  std::int64_t group = 1;
  Split split = Split::kBlock;
  std::string tier = "hbm";
  double cache_bytes = 0;  ///< in HBM, for rows that live in a slower tier
  RowCachePolicy cache_policy = RowCachePolicy::kLru;
  /// Rows by popularity: level i has one copy per group of `level_groups[i]` consecutive ranks (1:
  /// on every rank).
  std::optional<RowTierCut> row_tiers = std::nullopt;
  std::vector<std::int64_t> level_groups = {};
  /// Parts that lie apart: of the columns, or of the rows; and what a part has of a table.
  [[nodiscard]] std::int64_t pieces() const { return std::max(column_parts, row_blocks); }
  [[nodiscard]] std::array<std::int64_t, 2> rows(const EmbeddingTable& table,
                                                 std::int64_t piece) const;
  [[nodiscard]] std::array<std::int64_t, 2> columns(const EmbeddingTable& table,
                                                    std::int64_t piece) const;
  /// The order of rows in the row tiers of a plan in use; it may come from other lookups.
  const PlanTable* in_use = nullptr;
};

/// Forms that a plan may consist of, for those who carry it out in another system.
struct PlanForm {
  std::optional<Split> row_split = std::nullopt;  ///< none: of blocks and stripes the more even one
  bool column_parts = true;
  std::int64_t column_multiple = 1;  ///< that divides the columns of a part
  bool machine_groups = false;       ///< tables split by rows inside a unit: only inside a machine
  bool unpooled_groups = true;       ///< so too unpooled tables; else over all ranks or none
  std::int64_t unpooled_parts = 0;   ///< > 0: column parts of every unpooled table that is cut
  bool row_ranges = true;            ///< rows by popularity at several replication levels
  bool row_blocks = true;            ///< blocks of a table's rows on several groups of ranks
  /// Slower tiers that tables may live in; none: every tier of the system.
  std::optional<std::vector<std::string>> slow_tiers = std::nullopt;
  /// True if plans that were made without it can be carried out too.
  [[nodiscard]] bool any() const {
    return !row_split && column_parts && column_multiple == 1 && !machine_groups &&
           unpooled_groups && unpooled_parts == 0 && row_ranges && row_blocks && !slow_tiers;
  }
};

struct PlanSpaceOptions {
  /// Ranks of a table-row-wise group, or of one that shares a copy of rows.
  std::vector<std::int64_t> group_sizes = {};
  bool row_tiers = false;   ///< per-row replication levels
  bool slow_tiers = false;  ///< DDR, SSD, with caches in HBM
  bool dedup = false;       ///< ids deduplicated per rank before the exchange (row tiers)
  PlanForm form = {};
  LineFit fit = LineFit::kNear;  ///< of exchanges: kBelow makes a space for bounds of the step
  /// Seconds: the bounds need not hold for plans that step longer.
  double longest = std::numeric_limits<double>::infinity();
  /// Tables of a plan in use, in the workload's order; empty, or nullptr for a table it lacks. Row
  /// tiers of these are options too, with the ranges and the order of rows that they have. They
  /// must outlive the space.
  std::vector<const PlanTable*> in_use = {};
  /// Plans for the job's tables that others propose: their blocks of rows are options too.
  std::vector<const EmbeddingPlan*> proposed = {};
};

/// The plans a job can have, as a placement problem with priced options.
///
///   kinds: data_parallel; row_wise; table_row_wise on groups of each size (a node, several nodes,
///   a pod); table_wise; column_wise in 2 to 64 equal parts; blocks of rows on 2, 4, 8 ... ranks or
///   groups at any place, of tables whose lookups are half of an average rank's or more, down to
///   blocks of half; with `row_tiers` rows by popularity at several replication levels; with
///   `slow_tiers` tables in slower memory, with caches of some sizes.
class PlanSpace {
 public:
  /// Errors: InputError when the job cannot be planned (no DLRM, capacity 0, batch over devices).
  PlanSpace(const Job& job, const EmbeddingPrices& prices, const PlanSpaceOptions& options);

  [[nodiscard]] const PlacementProblem& problem() const { return problem_; }
  [[nodiscard]] const OptionMeaning& meaning(std::size_t table, std::int32_t option) const {
    return meanings_[table][static_cast<std::size_t>(option)];
  }
  /// Seconds that every plan's step takes for the dense model, whatever it decides.
  [[nodiscard]] double dense_step() const { return dense_step_; }
  /// The part of them that no exchange of looked-up rows can be overlapped with: the layers after
  /// the tables, forward and backward.
  [[nodiscard]] double dense_alone() const { return dense_alone_; }
  /// The plan file's form of a placement.
  [[nodiscard]] EmbeddingPlan plan(const Job& job, const Placement& placement) const;

 private:
  friend class PlanSpaceBuilder;
  PlacementProblem problem_;
  std::vector<std::vector<OptionMeaning>> meanings_;
  double dense_step_ = 0;
  double dense_alone_ = 0;
};

/// Errors: InputError when a job's tables cannot be planned: no DLRM, no tables, a batch that does
/// not divide over the devices.
void check_plannable(const Job& job);

/// True if some table must stay out of the devices' own memory (Job::plan_constraints).
bool asks_for_slow_tier(const Job& job);

/// Sizes of row-split groups: machines and units of every fabric level, two and four of them, where
/// they divide the job's devices; machines alone with `form.machine_groups` and with very many tables.
std::vector<std::int64_t> group_sizes(const Job& job, const PlanForm& form = {});

}  // namespace stepcast::planner
