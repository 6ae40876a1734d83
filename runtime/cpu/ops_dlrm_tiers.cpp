#include <algorithm>

#include "core/error.h"
#include "runtime/cpu/ops_dlrm.h"
#include "runtime/futex.h"

#include "core/numbers.h"

namespace stepcast::runtime::cpu {
namespace {

/// Contiguous pieces of a row and of its slot, weights first, then optimizer state.
struct RowParts {
  struct Part {
    float* store = nullptr;
    float* slots = nullptr;
    std::int64_t width = 0;
  };
  Part parts[3];
  std::size_t count = 0;

  RowParts(const Program& program, const TensorTable& storage, const EmbeddingShard& shard) {
    const auto at = [&](TensorId id) { return reinterpret_cast<float*>(storage.at(id, 0)); };
    parts[count++] = {at(shard.weights), at(shard.cache->rows), shard.dim};
    if (!shard.has_state) {
      return;
    }
    const Tensor& store = program.tensors[shard.state];
    const std::int64_t moments = shard.rows > 0 ? store.rows / shard.rows : 0;
    for (std::int64_t m = 0; m < moments; ++m) {
      parts[count++] = {at(shard.state) + m * shard.rows * store.columns,
                        at(shard.cache->state) + m * shard.cache->slots * store.columns,
                        store.columns};
    }
  }
  RowParts(const OpContext& c, const EmbeddingShard& shard)
      : RowParts(c.program, *c.storage, shard) {}
  void load(const RowCache::Move& m) const {
    for (std::size_t p = 0; p < count; ++p) {
      const Part& at = parts[p];
      std::copy_n(at.store + m.row * at.width, at.width, at.slots + m.slot * at.width);
    }
  }
  void store(const RowCache::Move& m) const {
    for (std::size_t p = 0; p < count; ++p) {
      const Part& at = parts[p];
      std::copy_n(at.slots + m.slot * at.width, at.width, at.store + m.row * at.width);
    }
  }
  [[nodiscard]] double row_bytes() const {
    std::int64_t floats = 0;
    for (std::size_t p = 0; p < count; ++p) {
      floats += parts[p].width;
    }
    return static_cast<double>(floats) * sizeof(float);
  }
};

/// Shards of the op's group that live in its tier.
template <class Visit>
void for_each_tiered_shard(OpContext& c, Visit visit) {
  TieredRows& tiers = *dlrm_state(c).tiers;
  const EmbeddingGroup& group = *c.program.group_of(c.op);
  auto& caches = tiers.caches.at(index(c.op.as<TierAttributes>().group));
  for (std::size_t i = 0; i < group.shards.size(); ++i) {
    if (caches[i] &&
        c.program.tensors[group.shards[i].weights].tier == c.op.as<TierAttributes>().tier + 1) {
      visit(tiers, group.shards[i], *caches[i], i);
    }
  }
}

/// The ids that reach a shard; `first` of them stand before the local batch's own.
kernels::Bags looked_up(OpContext& c, DlrmState& state, EmbeddingRoute route, std::size_t shard) {
  if (is_local(route)) {
    const std::int32_t slice = state.shards_of(route)[shard].slice;
    state.select_rows(c, slice);
    return state.slice_bags(c, slice);
  }
  const DlrmState::Lists& lists = state.lists[static_cast<std::size_t>(route)][shard];
  return {lists.ids.data(), lists.offsets.data(),
          static_cast<kernels::Index>(lists.offsets.size()) - 1};
}

/// The bytes take what the tier's link takes, where one is described.
void pass(const OpContext& c, double bytes, std::int64_t start) {
  if (c.tiers != nullptr && bytes > 0) {
    c.tiers->move(c.op.as<TierAttributes>().tier, bytes, start);
  }
}

}  // namespace

void DlrmBatches::settle(const Program& program, const TensorTable& storage) {
  for (std::size_t g = 0; g < program.embeddings.size(); ++g) {
    const EmbeddingGroup& group = program.embeddings[g];
    for (std::size_t i = 0; i < group.shards.size(); ++i) {
      if (const std::optional<RowCache>& cache = now->tiers->caches.at(g)[i]) {
        const RowParts parts(program, storage, group.shards[i]);
        for (const RowCache::Move& m : cache->held()) {
          parts.store(m);
        }
      }
    }
  }
}

void tier_fetch(OpContext& c) {
  const std::int64_t start = steady_ns();
  DlrmState& state = dlrm_state(c);
  const auto route = c.op.as<TierAttributes>().route;
  double bytes = 0;
  for_each_tiered_shard(
      c, [&](TieredRows& tiers, const EmbeddingShard& shard, RowCache& cache, std::size_t i) {
        const kernels::Bags bags = looked_up(c, state, route, i);
        const std::int64_t first = bags.count > 0 ? bags.begin(0) : 0;
        const std::int64_t count = bags.lookups();
        std::vector<std::int64_t>& slots = state.lists[static_cast<std::size_t>(route)][i].slots;
        if (slots.size() < index(first + count)) {
          slots.resize(index(first + count));
        }
        tiers.loads.clear();
        tiers.stores.clear();
        cache.begin_batch();
        const RowParts parts(c, shard);
        cache.look_up({bags.indices + first, index(count)}, slots.data() + first, tiers.loads,
                      tiers.stores);
        // Rows that had to make room come first: their slots are taken by others.
        for (const RowCache::Move& m : tiers.stores) {
          parts.store(m);
        }
        for (const RowCache::Move& m : tiers.loads) {
          parts.load(m);
        }
        bytes += tiers.count(c.op.as<TierAttributes>().tier, static_cast<double>(count),
                             static_cast<double>(cache.touched()), parts.row_bytes());
      });
  pass(c, bytes, start);
  c.bytes_sent = bytes;
}

void tier_write_back(OpContext& c) {
  const std::int64_t start = steady_ns();
  double bytes = 0;
  for_each_tiered_shard(
      c, [&](TieredRows& tiers, const EmbeddingShard& shard, RowCache& cache, std::size_t) {
        tiers.stores.clear();
        cache.trim(tiers.stores);
        const RowParts parts(c, shard);
        for (const RowCache::Move& m : tiers.stores) {
          parts.store(m);
        }
        const auto written = static_cast<double>(tiers.stores.size());
        RowTraffic& sum = tiers.traffic.at(c.op.as<TierAttributes>().tier);
        sum.written += written;
        sum.written_bytes += written * parts.row_bytes();
        bytes += written * parts.row_bytes();
      });
  pass(c, bytes, start);
  c.bytes_sent = bytes;
}

}  // namespace stepcast::runtime::cpu
