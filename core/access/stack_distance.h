#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/access/access.h"

namespace stepcast {

/// Hit rate of an LRU cache of every size on one recording, in the order it was recorded: by stack
/// distances (Mattson et al., IBM Systems J. 9(2), 1970), the number of distinct rows looked up
/// since a row was last. Unlike Access::hit_rate it sees sessions and drift, and only misses of
/// rows seen for the first time.
///
/// With a sample rate r < 1 only rows whose hash falls below r count and distances are divided by
/// r (SHARDS, Waldspurger et al., FAST 2015): memory and time fall with r, and the curve is an
/// estimate. Time O(n + r n log(r n)).
class StackDistances {
 public:
  /// Errors: InputError for a sample rate outside (0, 1] or one that keeps no row.
  StackDistances(std::span<const std::int64_t> lookups, double sample = 1);

  [[nodiscard]] double hit_rate(double capacity) const;
  /// Distinct rows of the recording; an estimate when sampled.
  [[nodiscard]] double distinct() const { return distinct_; }
  /// Lookups that were followed, of those recorded.
  [[nodiscard]] std::int64_t followed() const { return followed_; }

 private:
  double sample_, distinct_ = 0, expected_ = 0;
  std::int64_t followed_ = 0;
  std::vector<std::int64_t> within_;  ///< lookups at a distance below i + 1, among those followed
};

/// Reuse counts of a recording in bins (0, 1], (1, 2], (2, 4], (4, 8], ...: what a histogram file
/// holds.
std::vector<ReuseBin> reuse_bins(std::span<const std::int64_t> lookups);

}  // namespace stepcast
