#pragma once
#include <optional>
#include <utility>

#include "core/access/access.h"
#include "core/access/row_traffic.h"

namespace stepcast {

/// A cache of `capacity` rows that sees its lookups batch by batch: what a batch lacks is fetched
/// before it, and what is over the capacity leaves after it.
///
///   lru: fetched = U(T + n) - U(T),   U(T) = capacity
///   lfu: fetched = C(n),   C(n) the distinct rows of n lookups beyond the `capacity` hottest
///
/// n lookups a batch, U(n) the distinct rows among n lookups (Access::unique): before a batch the
/// cache holds the rows of the last T lookups, T its characteristic time (Che, Tung, Wang, JSAC
/// 20(7), 2002), so a batch lacks what T + n lookups touch beyond that. Without a cache T = 0 and
/// every distinct row is fetched; in the limit of one lookup a batch it is Access::hit_rate.
/// Counts find the hottest rows in the long run; from an empty cache on lfu is taken to fetch what
/// was never seen before, and at least what it fetches in the long run: a lower bound.
/// Valid:   independent lookups. Checked against a simulated cache by
///          tests/core/row_cache_model_test.cpp and against the runtime's by tests/runtime.
class RowCacheModel {
 public:
  /// `under_way`: lookups of a batch that is still in use, whose rows stay too.
  RowCacheModel(Access access, double capacity, double lookups,
                RowCachePolicy policy = RowCachePolicy::kLru, double under_way = 0);
  /// Traffic of batch `number` since the cache was empty (0 the first); negative: in the long run.
  [[nodiscard]] RowTraffic batch(double number = -1) const;
  /// Rows in memory at once, cached or fetched, in the long run: U(T + n).
  [[nodiscard]] double most_rows() const;

 private:
  [[nodiscard]] double distinct(double lookups) const;
  /// Expected lookups of rows beyond the hottest.
  [[nodiscard]] double cold(double lookups) const;
  [[nodiscard]] RowTraffic counted_batch(double number) const;
  Access access_;
  double capacity_;
  double lookups_;
  RowCachePolicy policy_;
  double under_way_;
  double memory_ = 0;                              ///< T
  std::optional<std::pair<Access, double>> cold_;  ///< lfu: their law and share of the lookups
};

}  // namespace stepcast
