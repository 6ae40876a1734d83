#pragma once
#include <array>
#include <cstddef>

#include "core/formats.h"
#include "core/graph/program_fwd.h"



namespace stepcast::models {

/// Lookup statistics of one table shard in one op, sampled on a grid of window lengths so that a
/// cache of any size can be asked cheaply: `unique[i]` = expected distinct rows in a share 2^(i -
/// kWindows + 1) of the op's lookups.
///
/// Denning's relation turns this one curve into everything a least-recently-used cache does: a
/// cache that holds the rows of a window of w lookups misses at the rate U'(w). Source: Denning &
/// Schwartz, "Properties of the working-set model", CACM 15(3), 1972; it is Che's approximation
/// with the characteristic time as the window.
struct ShardTraffic {
  static constexpr std::size_t kWindows = 20;
  static constexpr std::size_t kSteps = 12;
  const EmbeddingShard* shard = nullptr;
  double lookups = 0;
  double bags = 0;
  double row_bytes = 0;  ///< of the stored format
  double rows = 0;
  std::array<double, kWindows> unique{};
  /// Expected distinct rows in 2^(i + 1) ops of successive steps; zeros where not requested.
  std::array<double, kSteps> over{};
  [[nodiscard]] double unique_rows() const { return unique.back(); }
  /// Distinct rows in the share `window` (0, 1] of the lookups; linear between grid points.
  [[nodiscard]] double unique_in(double window) const;
  /// Lookups of one op that miss a cache which keeps the last `window` (a share of the op's
  /// lookups) and starts empty: U(w) to fill it, then (1 - w) n U'(w). Window >= 1 leaves the cold
  /// misses U(n).
  [[nodiscard]] double misses(double window) const;
  /// For a table looked up step after step. Uses in one op lie within `window` of each
  /// other's lookups or miss; uses in different steps, with all that happens between, hit within
  /// `across` ops (0 is the cold start above). With x = min(across, window), both at most 1:
  ///
  ///   misses = x n U'(x n) + U(window n) - U(x n) + (1 - window) n U'(window n)
  ///
  /// and n U'(across n) from one whole op on: a lookup at position p of the op crosses into the
  /// step before if its reuse is longer than p. Never more than misses(window).
  [[nodiscard]] double misses(double window, double across) const;
  /// Distinct rows in `ops` ops of successive steps, up to 2^kSteps; linear between grid points.
  [[nodiscard]] double unique_over(double ops) const;
  /// U'(window n): the share of lookups whose row was not seen in the last `window` ops.
  [[nodiscard]] double miss_rate(double window) const;

 private:
  [[nodiscard]] double slope(std::size_t interval) const;
};
ShardTraffic shard_traffic(const EmbeddingShard& shard, Format format);

/// Window (share of the op's lookups, up to 1) whose distinct rows of all tables together fill
/// `capacity` bytes; rows occupy whole sectors of `sector` bytes.
double shared_window(const std::vector<ShardTraffic>& shards, double capacity, double sector);
/// The same for one table that has the cache to itself.
double own_window(const ShardTraffic& shard, double capacity, double sector);

/// Ops of successive steps (up to 2^kSteps) whose distinct rows, with `streamed` bytes of other
/// data per step, fill `capacity`. Rows occupy whole sectors of `sector` bytes.
double window_across(const std::vector<ShardTraffic>& shards, double streamed, double capacity,
                     double sector);

/// Bytes that one row occupies in whole sectors.
double sector_bytes(double bytes, double sector);

}  // namespace stepcast::models
