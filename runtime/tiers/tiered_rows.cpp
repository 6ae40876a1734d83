#include "runtime/tiers/tiered_rows.h"

#include <algorithm>

namespace stepcast::runtime {

TieredRows::TieredRows(const Program& program) : traffic(program.tiers.size()) {
  const bool ahead = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return op.kind == OpKind::kTierFetch && (op.flags & op_flags::kNextBatch) != 0;
  });
  for (const EmbeddingGroup& group : program.embeddings) {
    auto& of_group = caches.emplace_back();
    for (const EmbeddingShard& shard : group.shards) {
      of_group.emplace_back();
      if (shard.cache) {
        of_group.back().emplace(shard.cache->slots, shard.cache->capacity, ahead ? 1 : 0,
                                shard.cache->policy, shard.rows);
      }
    }
  }
}

double TieredRows::count(std::size_t tier, double lookups, double touched, double row_bytes) {
  const auto fetched = static_cast<double>(loads.size());
  const auto written = static_cast<double>(stores.size());
  traffic.at(tier) +=
      {lookups, touched, fetched, written, fetched * row_bytes, written * row_bytes};
  return (fetched + written) * row_bytes;
}

}  // namespace stepcast::runtime
