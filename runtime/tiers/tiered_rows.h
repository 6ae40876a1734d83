#pragma once
#include <optional>
#include <vector>

#include "core/graph/program.h"
#include "runtime/tiers/row_cache.h"

namespace stepcast::runtime {

/// The caches of a rank's shards in slower tiers; they outlive batches, so the current one and
/// the next one share them. Only the stream of fetches and write-backs touches them.
struct TieredRows {
  explicit TieredRows(const Program& program);
  /// By embedding group of the program and shard; empty where a shard is in the device's memory.
  std::vector<std::vector<std::optional<RowCache>>> caches;
  std::vector<RowTraffic> traffic;  ///< since the run began; by tier of the program
  std::vector<RowCache::Move> loads, stores;

  /// Adds what a batch of `lookups` in `touched` distinct rows moved: `loads` and `stores`, of
  /// `row_bytes` each. Returns the bytes moved.
  double count(std::size_t tier, double lookups, double touched, double row_bytes);
};

}  // namespace stepcast::runtime
