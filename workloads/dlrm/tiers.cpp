#include <cmath>

#include "core/error.h"
#include "workloads/dlrm/step.h"
#include "workloads/embedding_plan/embedding_tiers.h"

// Rows that live in slower memory tiers: a cache in front of each shard, what a batch lacks fetched
// before its lookups, what leaves the cache written back after its updates.

namespace stepcast::workloads {

EmbeddingShard::Cache LayeredStep::declare_cache(const EmbeddingShard& shard,
                                                 const EmbeddingSlice& s) {
  const CacheShape shape = cache_shape(job_, table(s), *shard.access, shard.rows, shard.dim,
                                       shard.drawn, s.cache_bytes, s.cache_policy);

  EmbeddingShard::Cache cache;
  cache.slots = shape.slots;
  cache.capacity = shape.capacity;
  cache.policy = s.cache_policy;
  cache.expected = shape.expected;
  cache.expected.lookups = shard.lookups;
  const Tensor& store = b_.tensor_at(shard.weights);
  cache.rows = b_.tensor({.name = store.name + ".cached",
                          .role = TensorRole::kEmbedding,
                          .format = store.format,
                          .rows = shape.slots,
                          .columns = store.columns,
                          .per_microbatch = false,
                          .pieces = {}});
  if (shard.has_state) {
    const Tensor& state = b_.tensor_at(shard.state);
    const std::int64_t moments = shard.rows > 0 ? state.rows / shard.rows : 1;
    cache.state = b_.tensor({.name = state.name + ".cached",
                             .role = TensorRole::kOptimizerState,
                             .format = state.format,
                             .rows = moments * shape.slots,
                             .columns = state.columns,
                             .per_microbatch = false,
                             .pieces = {}});
  }
  return cache;
}

void LayeredStep::fetch_rows(EmbeddingRoute r, bool next) {
  Route& of = route(r);
  if (of.fetches.empty()) {
    return;
  }
  const Indices& from = next ? next_indices_ : indices_;
  for (const Fetch& f : of.fetches) {
    const bool again = &f != &of.fetches.front();
    auto op = w_.op(Channel::kTier, OpKind::kTierFetch,
                    fmt::format("embedding.{}.{}.fetch", name_of(r), b_.tier_name(f.tier)),
                    {std::llround(f.expected.fetched), std::llround(f.expected.touched),
                     std::llround(f.expected.lookups)})
                  .format(of.format)
                  .attributes(TierAttributes{
                      .group = of.group, .route = r, .tier = static_cast<std::uint8_t>(f.tier - 1)})
                  .in(is_local(r) ? std::vector<TensorId>{}
                                  : std::vector<TensorId>{from.lengths, from.ids})
                  .work(Flops{}, Bytes(f.expected.fetched_bytes), Bytes(f.expected.fetched_bytes));
    mark(op, next);
    if (next == ahead(DlrmPipeline::kSparseDist) && !again) {
      w_.follows(indexed_);
      indexed_ = fetched_ahead() ? indexed_ : kNoOp;  // the compute stream has waited
    }
  }
  of.fetched = w_.written();
}

void LayeredStep::write_rows_back(EmbeddingRoute r, OpId updated) {
  const Route& of = route(r);
  for (const Fetch& f : of.fetches) {
    w_.op(Channel::kTier, OpKind::kTierWriteBack,
          fmt::format("embedding.{}.{}.write_back", name_of(r), b_.tier_name(f.tier)),
          {std::llround(f.expected.written)})
        .format(of.format)
        .attributes(TierAttributes{
            .group = of.group, .route = r, .tier = static_cast<std::uint8_t>(f.tier - 1)})
        .work(Flops{}, Bytes(f.expected.written_bytes), Bytes(f.expected.written_bytes));
    w_.follows(updated);
  }
}

}  // namespace stepcast::workloads
