#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/access/row_cache_model.h"

namespace stepcast::runtime {

/// Which rows of a shard are in the slots of a cache, in the order of their last lookup, and with
/// lfu how often each row of the shard has been looked up. It moves nothing itself: it says what
/// has to be moved.
///
///   cache.begin_batch();
///   cache.look_up(ids, slots, loads, stores);   // fills slots, one per id
///   for (const auto& [row, slot] : stores) ...  // only where slots run out
///   for (const auto& [row, slot] : loads) ...   // into the slot, before its use
///   ...                                         // rows are used and updated in their slots
///   cache.trim(stores);                         // what leaves: from the slot to its row
///
/// After `trim` the `capacity` rows looked up last are left (lfu: those looked up most often, of
/// equals the later ones), and with `batches_ahead` 1 those of the batch that was looked up since.
/// Lookups are O(1) per row; lfu's `trim` is O(slots).
class RowCache {
 public:
  struct Move {
    std::int64_t row = 0;
    std::int64_t slot = 0;
  };
  /// `batches_ahead`: batches that are looked up before the current one is trimmed. Valid: fewer
  /// than 2^32 rows, at most 2^30 slots; lfu wants the number of `rows`.
  RowCache(std::int64_t slots, std::int64_t capacity, int batches_ahead,
           RowCachePolicy policy = RowCachePolicy::kLru, std::int64_t rows = 0);

  void begin_batch() { ++batch_; }
  /// Adds to `loads` the rows of this batch that were not in a slot, each once, and to `stores` the
  /// rows that had to make room for them. Errors: RunError where the batch needs more slots than
  /// there are.
  void look_up(std::span<const std::int64_t> rows, std::int64_t* slots, std::vector<Move>& loads,
               std::vector<Move>& stores);
  /// Adds to `stores` the rows that leave.
  void trim(std::vector<Move>& stores);

  /// Rows and the slots they are in.
  [[nodiscard]] std::vector<Move> held() const;
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }
  /// Distinct rows of the current batch.
  [[nodiscard]] std::int64_t touched() const { return touched_; }

 private:
  static constexpr std::int32_t kNone = -1;
  struct Slot {
    std::uint32_t row = 0;
    std::int32_t newer = kNone, older = kNone;
    std::uint32_t batch = 0;
  };
  [[nodiscard]] std::size_t home(std::uint32_t row) const;
  [[nodiscard]] std::int32_t find(std::uint32_t row) const;
  void enter(std::uint32_t row, std::int32_t slot);
  void forget(std::uint32_t row);
  void unlink(std::int32_t slot);
  void link_newest(std::int32_t slot);
  void remove(std::int32_t slot, std::vector<Move>& stores);
  /// A row leaves that no batch from `oldest_needed` on needs, if there is one.
  bool evict(std::vector<Move>& stores, std::uint32_t oldest_needed);
  /// Fills `leaving_` with the slots last used before batch `end`, the oldest first.
  void collect(std::uint32_t end);
  /// Leaves the `count` of them whose rows were looked up least.
  void least_first(std::int64_t count);

  std::int64_t capacity_;
  int ahead_;
  std::int64_t size_ = 0;
  std::int64_t touched_ = 0;
  std::uint32_t batch_ = 0;
  std::int32_t newest_ = kNone, oldest_ = kNone;
  std::vector<std::uint32_t> lookups_;  ///< lfu: by row of the shard
  std::vector<std::int32_t> leaving_;   ///< lfu: candidates, kept so that no batch allocates
  std::vector<Slot> slots_;
  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> table_;  ///< open addressing, linear probing; a power of two long
};

}  // namespace stepcast::runtime
