#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/access/access.h"

namespace stepcast {

/// How often rows are looked up, from one pass over a stream of ids of any length in fixed memory
/// (5 MB): distinct rows, the hottest rows, and the reuse histogram that Access::histogram
/// takes.
///
///   IdSketch sketch;
///   sketch.add(ids);                       // any number of times
///   Access law = Access::histogram(rows, sketch.bins(rows), sketch.lookups());
///
/// Two tables, each ruled by the row alone, so that the order of the stream hardly matters:
///
/// - A sample of rows: those whose hash falls below a threshold, each with its exact count. Where
///   the table is full the threshold is halved and what lies above is dropped, so a row that is in
///   was counted from the start (Gibbons, "Distinct sampling", VLDB 2001). With m rows kept at a
///   rate r, m / r estimates the distinct rows with a standard error of 1 / sqrt(m), at most 0.6 %.
/// - The hottest rows: 8,192 counters. A row that enters may have been missed `floor` times before;
///   where the counters are full, the floor is raised to the median and rows whose count with what
///   was missed lies below leave (Manku and Motwani, "Approximate frequency counts", VLDB 2002; the
///   purge as Anderson et al., "Frequent items", IMC 2017). So count <= true count <= count +
///   missed, a row looked up more than `floor()` times is there, and floor() <= lookups / 2,048.
///
/// Below 65,536 distinct rows everything is exact. Deterministic; does not depend on how the stream
/// is cut into calls.
class IdSketch {
 public:
  IdSketch();

  /// Ids are not negative. About 10 ns an id (bench/id_sketch_bench.cpp).
  void add(std::span<const std::int64_t> ids);

  [[nodiscard]] double lookups() const { return static_cast<double>(lookups_); }
  [[nodiscard]] std::int64_t largest_id() const { return largest_; }  ///< -1: nothing added
  [[nodiscard]] bool exact() const { return level_ == 0; }
  [[nodiscard]] double distinct() const;
  /// Standard error of distinct(), as a fraction.
  [[nodiscard]] double distinct_error() const;

  struct HotRow {
    std::int64_t row = 0;
    std::int64_t count = 0;   ///< seen at least
    std::int64_t missed = 0;  ///< and at most this often more
  };
  /// Rows by count, the hottest first; all of them where the sketch is exact.
  [[nodiscard]] std::vector<HotRow> hot_rows() const;
  /// No row that is missing in hot_rows() was looked up more often than this.
  [[nodiscard]] std::int64_t floor() const { return floor_; }

  /// Reuse counts in bins (0, 1], (1, 2], (2, 4], ... as reuse_bins(): hot rows one by one, the
  /// others from the sample. Accesses sum to lookups(); no more rows than `rows`, where given.
  [[nodiscard]] std::vector<ReuseBin> bins(std::int64_t rows = 0) const;

  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  struct Slot {
    std::int64_t row = -1;
    std::int64_t count = 0;
  };
  void add_block(const std::int64_t* ids, std::size_t count);
  void add_sampled(std::int64_t id, std::uint64_t hash);
  void add_hot(std::int64_t id, std::uint64_t hash);
  void halve_sample();
  void start_hot();
  void put_hot(const Slot& slot, std::int64_t missed);
  void purge_hot();

  std::int64_t lookups_ = 0, largest_ = -1;
  std::vector<Slot> sample_;
  std::size_t sampled_ = 0;
  int level_ = 0;  ///< the sample keeps hashes whose first `level_` bits are 0
  std::vector<Slot> hot_, spare_;
  std::vector<std::int64_t> missed_, spare_missed_;
  std::size_t hot_count_ = 0;
  std::int64_t floor_ = 0;
};

}  // namespace stepcast
