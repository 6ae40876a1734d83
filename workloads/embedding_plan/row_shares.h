#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/access/access.h"
#include "core/access/row_order.h"
#include "core/graph/embedding_placement.h"

namespace stepcast::workloads {

/// A row of a table and the share of the table's lookups that go to it.
struct HotRow {
  std::int64_t row = 0;
  double popularity = 0;
};

/// Whether some rows of a table are looked up more often than others. No law: uniform.
bool is_skewed(const Access* law);

/// The 512 most popular rows of a table in the workload's row order, most popular first; none
/// where no row stands out. At zipf 1.05 they take 51 % of the lookups of 10^7 rows.
std::vector<HotRow> hottest_rows(const Access* law);

/// The rows that are followed, by their position in an order that a plan brings.
std::vector<HotRow> hot_rows_of(const LookupsInOrder& lookups);

/// The share of a table's lookups that falls to each member of a row split, for any number of
/// members:
///
///   share(m) = sum of the popularities of the hottest rows that m holds
///            + (lookups of all other rows) * (other rows of m) / (other rows)
///
/// The hottest rows are counted where they lie: exactly where the order is known (popularity,
/// recorded ids), under the permutation that the workload draws with its seed otherwise. Rows in
/// order of popularity in blocks are exact for every member. Members that hold no hot row share one
/// figure, so memory and time are O(512 + members) to make and O(log 512) to ask.
class RowShares {
 public:
  struct Member {
    std::int64_t position = 0;
    double share = 0;
  };
  RowShares() = default;
  /// `hottest`: hottest_rows(law), or hot_rows_of for an order of a plan; not needed in order of
  /// popularity.
  RowShares(const Access* law, const RowSplit& split, std::span<const HotRow> hottest);

  [[nodiscard]] double of(std::int64_t position) const;
  /// Shares of all members, by position.
  [[nodiscard]] std::vector<double> by_member() const;
  /// Were the hottest rows spread evenly as well.
  [[nodiscard]] double even(std::int64_t position) const;
  /// Sum over all members.
  [[nodiscard]] double total() const { return total_; }
  [[nodiscard]] double most() const { return most_; }
  /// Members whose share is not in proportion to their rows, ascending by position.
  [[nodiscard]] const std::vector<Member>& uneven() const { return uneven_; }

 private:
  RowSplit split_;
  double total_ = 1;
  double most_ = 1;
  double per_row_ = 0;  ///< of a row that is not among the hottest
  std::vector<Member> uneven_;
};

}  // namespace stepcast::workloads
