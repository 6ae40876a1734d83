#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/graph/embedding_placement.h"
#include "runtime/cpu/kernels/distinct.h"
#include "runtime/cpu/kernels/distinct_lists.h"
#include "runtime/cpu/kernels/embedding.h"
#include "runtime/cpu/op_context.h"
#include "runtime/embedding_exchange.h"
#include "runtime/tiers/tiered_rows.h"

namespace stepcast::runtime::cpu {

/// State that the DLRM ops of one rank keep: who holds which slice, and the index lists of the
/// batch in progress. Lists grow to the largest batch seen and stay.
struct DlrmState : EmbeddingExchange {
  /// The ids of the global batch that reach one shard of this rank.
  struct Lists {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> slots;    ///< of a shard in a slower tier: where its cache has them
    std::vector<std::int64_t> offsets;  ///< one bag per sample, in the order of its embedding op
    std::vector<float> factors;         ///< 1 / bag size of a mean split by rows
  };

  /// Those lookups of the local batch that fall into a slice's rows, as rows of the slice.
  struct Selection {
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> offsets;
    std::vector<float> factors;    ///< 1 / size of the whole bag; of means looked up locally
    kernels::DistinctLists lists;  ///< where they are pooled once
    // Where ids are deduplicated before they travel.
    kernels::DistinctIds ids;
    std::vector<std::int64_t> distinct_offsets;  ///< all distinct rows in the first bag
    std::vector<std::int64_t> places;            ///< by distinct row: of its columns in sent_rows
  };

  DlrmState(const ExecutionGraph& graph, std::int32_t rank, std::shared_ptr<const RowRemaps> remaps,
            std::shared_ptr<TieredRows> tiers);
  void select_range(const OpContext& c, std::int32_t slice);
  /// The local batch's bags of a slice's table, as the workload numbers rows.
  [[nodiscard]] kernels::Bags local_bags(const OpContext& c, const EmbeddingSlice& s) const;
  /// The same, or their distinct lists where a slice pools these once.
  [[nodiscard]] kernels::Bags pooled_bags(const OpContext& c, std::int32_t slice) const;
  /// Finds what of the local batch falls into a slice; `slice_bags` reads it until the next batch.
  void select_rows(const OpContext& c, std::int32_t slice);
  /// Whether a slice's rows travel once, however often a rank looks them up.
  [[nodiscard]] bool deduplicates(const EmbeddingSlice& s) const {
    return dedup && is_sequence(s.route) && !s.pools_lists_once();
  }
  /// The local batch's bags of a slice, with rows counted from its first.
  [[nodiscard]] kernels::Bags looked_up_bags(const OpContext& c, std::int32_t slice) const;
  /// Bags of them that travel: the same, or each distinct row once, in the first bag.
  [[nodiscard]] kernels::Bags slice_bags(const OpContext& c, std::int32_t slice) const;
  Lists& lists_of(const Arrival& a) { return lists[static_cast<std::size_t>(a.route)][a.shard]; }

  std::vector<std::vector<Lists>> lists;  ///< by route and shard
  std::vector<Selection> selections;      ///< by slice; used where it does not hold whole bags
  bool dedup;
  std::shared_ptr<const RowRemaps> remaps;
  std::shared_ptr<TieredRows> tiers;
  std::vector<std::int32_t> sent_lengths, lengths;
  std::vector<std::int64_t> sent_ids, ids, counted, cursors;
  std::vector<float> sent_rows,
      shard_rows;  ///< unpooled: of the local batch; of this rank's shards
  std::vector<float> shard_gradient;
  std::vector<float> list_rows;  ///< of distinct lists that are looked up locally
  Counts row_counts;
  kernels::EmbeddingWorkspace workspace;
};

/// The current batch and, in a pipelined program, the next one.
struct DlrmBatches : OpState {
  DlrmBatches(const ExecutionGraph& graph, const Program& program, std::int32_t rank);
  void begin_next_batch() override { std::swap(now, next); }
  [[nodiscard]] std::vector<RowTraffic> tier_traffic() const override {
    return now->tiers->traffic;
  }
  void settle(const Program& program, const TensorTable& storage) override;
  std::unique_ptr<DlrmState> now, next;
};

/// The lists of the batch an op works on.
inline DlrmState& dlrm_state(OpContext& c) {
  auto& batches = static_cast<DlrmBatches&>(*c.state);
  return (c.op.flags & op_flags::kNextBatch) != 0 ? *batches.next : *batches.now;
}

void index_pack(OpContext& c);
void index_unpack(OpContext& c);
/// Lengths (int32), ids (int64), or rows of the op's route.
void all_to_all_v(OpContext& c);
void embedding_forward(OpContext& c);
void embedding_backward(OpContext& c);
void embedding_gradient(OpContext& c);
void tier_fetch(OpContext& c);
void tier_write_back(OpContext& c);
void sequence_pool_forward(OpContext& c);
void sequence_pool_backward(OpContext& c);

}  // namespace stepcast::runtime::cpu
