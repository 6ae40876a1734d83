#include "runtime/cuda/ops_dlrm_tiers.h"

#include <algorithm>

#include "core/error.h"
#include "core/numbers.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/row_selection.h"
#include "runtime/cuda/ops_dlrm.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;

/// Weights, then optimizer state, of a shard's rows in their tier and in the slots of its cache.
kernels::RowParts parts_of(const OpContext& c, const EmbeddingShard& shard) {
  kernels::RowParts parts;
  const auto add = [&](const MatrixView& table, const MatrixView& slots, std::int64_t first_row,
                       std::int64_t first_slot) {
    STEPCAST_CHECK(parts.count < kernels::kRowParts, "a row of '{}' has more than {} parts",
                   c.program.name(c.op), kernels::kRowParts);
    parts.at[parts.count++] = {
        table.at(first_row, 0), slots.at(first_slot, 0),
        table.columns * static_cast<std::int64_t>(stored_bytes(table.format))};
  };
  add(c.tensor(shard.weights), c.tensor(shard.cache->rows), 0, 0);
  if (shard.has_state) {
    const MatrixView table = c.tensor(shard.state);
    const MatrixView slots = c.tensor(shard.cache->state);
    const std::int64_t moments = shard.rows > 0 ? table.rows / shard.rows : 0;
    for (std::int64_t m = 0; m < moments; ++m) {
      add(table, slots, m * shard.rows, m * shard.cache->slots);
    }
  }
  return parts;
}

double row_bytes(const kernels::RowParts& parts) {
  std::int64_t sum = 0;
  for (int p = 0; p < parts.count; ++p) {
    sum += parts.at[p].bytes;
  }
  return static_cast<double>(sum);
}

/// Shards of the op's group that live in its tier.
template <class Visit>
void for_each_tiered_shard(OpContext& c, Visit visit) {
  TieredCaches& tiers = *dlrm_state(c).tiers;
  const EmbeddingGroup& group = *c.program.group_of(c.op);
  auto& caches = tiers.rows.caches.at(index(c.op.as<TierAttributes>().group));
  for (std::size_t i = 0; i < group.shards.size(); ++i) {
    if (caches[i] &&
        c.program.tensors[group.shards[i].weights].tier == c.op.as<TierAttributes>().tier + 1) {
      auto& staging = tiers.staging.try_emplace({&c.op, i}, &c.ledger).first->second;
      visit(tiers.rows, group.shards[i], *caches[i], staging, i);
    }
  }
}

kernels::Bags looked_up(OpContext& c, DlrmState& state, EmbeddingRoute route, std::size_t shard) {
  return is_local(route) ? state.slice_bags(c, state.shards_of(route)[shard].slice)
                         : state.shard_bags(route, shard);
}

template <class T>
T* upload(const OpContext& c, const T* from, Buffer& to, std::size_t count) {
  T* device = to.reserve_of<T>(count);
  check(cudaMemcpyAsync(device, from, count * sizeof(T), cudaMemcpyHostToDevice, c.stream),
        "cudaMemcpyAsync of rows to move");
  return device;
}

/// Rows that had to make room leave first: their slots are taken by others.
void move(const OpContext& c, const kernels::RowParts& parts,
          const std::vector<RowCache::Move>& stores, const std::vector<RowCache::Move>& loads,
          TieredCaches::Staging& staging) {
  const std::size_t count = stores.size() + loads.size();
  if (count == 0) {
    return;
  }
  auto* moves = staging.moves.reserve_of<kernels::RowMove>(count);
  const auto same = [](const RowCache::Move& m) { return kernels::RowMove{m.row, m.slot}; };
  std::transform(stores.begin(), stores.end(), moves, same);
  std::transform(loads.begin(), loads.end(), moves + stores.size(), same);
  const auto* device = upload(c, moves, staging.moves_on_device, count);
  kernels::move_rows(parts, device, static_cast<kernels::Index>(stores.size()), false, c.stream);
  kernels::move_rows(parts, device + stores.size(), static_cast<kernels::Index>(loads.size()), true,
                     c.stream);
}

}  // namespace

void tier_fetch(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  const auto route = c.op.as<TierAttributes>().route;
  // The host has to see the ids: as many as there may be, and behind them how many there are.
  for_each_tiered_shard(c, [&](TieredRows&, const EmbeddingShard&, RowCache&,
                               TieredCaches::Staging& staging, std::size_t i) {
    if (is_local(route)) {
      state.select_rows(c, state.shards_of(route)[i].slice);
    }
    const kernels::Bags bags = looked_up(c, state, route, i);
    auto* ids = staging.ids.reserve_of<std::int64_t>(index(bags.lookups) + 1);
    const auto bring = [&](const std::int64_t* from, std::int64_t* to, std::size_t count) {
      check(
          cudaMemcpyAsync(to, from, count * sizeof(std::int64_t), cudaMemcpyDeviceToHost, c.stream),
          "cudaMemcpyAsync of ids");
    };
    if (bags.lookups > 0) {
      bring(bags.indices, ids, index(bags.lookups));
    }
    bring(bags.offsets + bags.count, ids + bags.lookups, 1);
  });
  c.wait_for_stream();
  double bytes = 0;
  for_each_tiered_shard(c, [&](TieredRows& tiers, const EmbeddingShard& shard, RowCache& cache,
                               TieredCaches::Staging& staging, std::size_t i) {
    const kernels::Bags bags = looked_up(c, state, route, i);
    const auto* ids = staging.ids.as<std::int64_t>();
    const auto count = index(ids[bags.lookups]);
    auto* slots = staging.slots.reserve_of<std::int64_t>(count);
    tiers.loads.clear();
    tiers.stores.clear();
    cache.begin_batch();
    cache.look_up({ids, count}, slots, tiers.loads, tiers.stores);
    Buffer& on_device = state.lists[static_cast<std::size_t>(route)][i].slots;
    on_device.reserve_of<std::int64_t>(index(bags.lookups));
    if (count > 0) {
      upload(c, slots, on_device, count);
    }
    const kernels::RowParts parts = parts_of(c, shard);
    move(c, parts, tiers.stores, tiers.loads, staging);
    bytes += tiers.count(c.op.as<TierAttributes>().tier, static_cast<double>(count),
                         static_cast<double>(cache.touched()), row_bytes(parts));
  });
  c.bytes_sent = bytes;
}

void tier_write_back(OpContext& c) {
  double bytes = 0;
  for_each_tiered_shard(c, [&](TieredRows& tiers, const EmbeddingShard& shard, RowCache& cache,
                               TieredCaches::Staging& staging, std::size_t) {
    tiers.stores.clear();
    cache.trim(tiers.stores);
    const kernels::RowParts parts = parts_of(c, shard);
    move(c, parts, tiers.stores, {}, staging);
    const auto written = static_cast<double>(tiers.stores.size());
    RowTraffic& sum = tiers.traffic.at(c.op.as<TierAttributes>().tier);
    sum.written += written;
    sum.written_bytes += written * row_bytes(parts);
    bytes += written * row_bytes(parts);
  });
  c.bytes_sent = bytes;
}

}  // namespace stepcast::runtime::cuda
