#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/job/job.h"
#include "core/job/plan.h"
#include "planner/embedding/held_rows.h"

namespace stepcast::planner {

/// Ranks that hold the rows of one table under a plan.
class TableHoldings {
 public:
  explicit TableHoldings(const PlanTable& table);
  /// Elements of `part` that the rank has to fetch: it holds them neither in that tier nor, where
  /// the order of rows is another one, for certain. Rows that the table did not have are not
  /// fetched.
  [[nodiscard]] std::int64_t missing(HeldPart part, std::int32_t rank, bool same_order) const;

 private:
  std::int64_t rows_ = 0;
  std::unordered_map<std::int32_t, std::vector<HeldPart>> by_rank_;
};

/// Rows stand in the same order, new ones behind them; one by popularity that names no hot rows is
/// that of the job's law, and counts as any other by popularity.
bool same_order(const PlanTable& a, const PlanTable& b);

/// Rows of a table that a plan places.
std::int64_t placed_rows(const PlanTable& table);

/// The same placement of a table that has grown to `rows`: ranges by popularity stay and the last
/// takes the new rows, others widen alike.
PlanTable grown_to(std::int64_t rows, PlanTable table);

/// Entry of a table in a plan: nullptr if it has none of that name, rows and columns.
const PlanTable* placed_table(const EmbeddingPlan& plan, const EmbeddingTable& table);
/// The same, also of fewer rows: the table has grown since.
const PlanTable* held_table(const EmbeddingPlan& plan, const EmbeddingTable& table);

/// The same rows and columns on the same ranks, in the same order and tier.
bool same_placement(const PlanTable& a, const PlanTable& b);

/// Bytes of weights and optimizer state behind `elements` of rows that are `columns` wide.
std::int64_t moved_bytes(const Job& job, const EmbeddingTable& table, std::int64_t elements,
                         std::int64_t columns);

/// Bytes that move to get from one plan to another: rows with their optimizer state that a rank
/// holds under the new plan and not under the old one. A row comes from the nearest rank that has
/// it; where row orders differ the count is an upper bound (planner/embedding/held_rows.h).
struct Migration {
  struct Table {
    std::string name;
    std::int64_t bytes = 0;
  };
  std::vector<Table> tables;           ///< those placed otherwise, most bytes first
  std::vector<std::int64_t> received;  ///< by rank
  std::vector<std::int64_t> sent;
  /// By the level of the fabric that the bytes cross, innermost first; "memory" is from one tier to
  /// another of the same rank.
  std::vector<std::pair<std::string, std::int64_t>> levels;
  std::int64_t bytes = 0;
  double seconds = 0;  ///< of the busiest rank, each level at its bandwidth; nothing else runs
};

/// `to` is a plan of the job. `from` may be of other devices, and have other tables: those that it
/// lacks, or has with other columns or more rows, begin anew and move nothing, as do the rows by
/// which a table has grown.
/// Errors: InputError when `to` is not for the job's tables and devices.
Migration migration_between(const Job& job, const EmbeddingPlan& from, const EmbeddingPlan& to);

}  // namespace stepcast::planner
