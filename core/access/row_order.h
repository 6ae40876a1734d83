#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/access/access.h"

namespace stepcast {

/// The order in which a plan numbers the rows of a table, by id: the rows that were hottest when it
/// was made come first. A plan keeps it, so that it can be deployed, and so that what it costs
/// under the lookups of another day can be told.
///
///   const auto order = RowOrder::listed(1'000'000, {17, 4, 99});
///   order.row_at(0) == 17; order.position_of(4) == 1; order.row_at(3) == 0;
///
/// Immutable; thread-safe.
class RowOrder {
 public:
  /// Row ids in the order of a zipf law of that seed (Access::row_of_rank). O(1) memory.
  static RowOrder seeded(std::int64_t rows, std::uint64_t seed);
  /// `ids` first, then the other rows by rising id. Errors: InputError where an id is outside the
  /// table or stands twice.
  static RowOrder listed(std::int64_t rows, std::vector<std::int64_t> ids);
  /// Order that a plan names of a law whose `hot` hottest rows it places apart: the seed of a zipf
  /// law, the ids of recorded lookups; nullopt where rows have no ids (a histogram).
  static std::optional<RowOrder> of(const Access& access, std::int64_t hot);

  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t row_at(std::int64_t position) const;
  [[nodiscard]] std::int64_t position_of(std::int64_t row) const;
  [[nodiscard]] const std::optional<std::uint64_t>& seed() const { return seed_; }
  [[nodiscard]] const std::vector<std::int64_t>& ids() const { return ids_; }  ///< of `listed`
  /// The order is that of the law's popularity, row for row.
  [[nodiscard]] bool follows(const Access& access) const;
  friend bool operator==(const RowOrder& a, const RowOrder& b) {
    return a.rows_ == b.rows_ && a.seed_ == b.seed_ && a.ids_ == b.ids_;
  }

 private:
  RowOrder(std::int64_t rows, std::optional<std::uint64_t> seed) : rows_(rows), seed_(seed) {}
  std::int64_t rows_ = 0;
  std::optional<std::uint64_t> seed_;
  std::vector<std::int64_t> ids_;
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted_;  ///< (id, position) of `ids_`
};

/// How the lookups of a law fall on the positions of an order that was made for another law. The
/// law's hottest rows (65,536, and as many as `hot`) are followed one by one; the others count as
/// distributed at random over the remaining positions.
class LookupsInOrder {
 public:
  /// Both over as many rows. `hot`: positions before the last range of interest.
  LookupsInOrder(const Access& access, const RowOrder& order, std::int64_t hot);
  /// Rows have ids, so that they can be followed: any law but a histogram.
  static bool can_follow(const Access& access) { return access.kind() != AccessKind::kHistogram; }

  /// The law over the rows at positions [first, last), renormalised, and the share of all lookups
  /// that go to them. O(rows followed).
  [[nodiscard]] std::pair<Access, double> range(std::int64_t first, std::int64_t last) const;
  /// Position of the law's row of that rank, which is below followed().
  [[nodiscard]] std::int64_t position_of_rank(std::int64_t rank) const {
    return positions_[static_cast<std::size_t>(rank)];
  }
  /// Share of lookups that go to it.
  [[nodiscard]] double popularity(std::int64_t rank) const {
    return access_.probability(static_cast<double>(rank));
  }
  [[nodiscard]] std::int64_t followed() const {
    return static_cast<std::int64_t>(positions_.size());
  }

 private:
  Access access_;
  std::vector<std::int64_t> positions_;  ///< by rank
};

}  // namespace stepcast
