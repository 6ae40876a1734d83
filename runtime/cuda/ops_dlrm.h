#pragma once
#include <memory>
#include <vector>

#include "core/graph/embedding_placement.h"
#include "runtime/cuda/kernels/embedding.h"
#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/op_context.h"
#include "runtime/embedding_exchange.h"

namespace stepcast::runtime::cuda {

/// Place of each row in the order of popularity, by table, in device memory; null where no slice
/// needs it.
struct RowOrder {
  RowOrder(const ExecutionGraph& graph, Ledger& ledger);
  std::vector<Buffer> memory;
  std::vector<const std::uint32_t*> of_table;
};

struct TieredCaches;  // ops_dlrm_tiers.h

/// State that the DLRM ops of one rank keep: who holds which slice (on the host), and the index
/// lists of the current batch (in device memory). Lists grow to the largest batch seen and stay.
struct DlrmState : EmbeddingExchange {
  /// The ids of the global batch that reach one shard of this rank.
  struct Lists {
    Buffer ids, offsets, factors;
    Buffer slots;  ///< of a shard in a slower tier: where its cache has the ids
    explicit Lists(Ledger* ledger);
  };

  /// Those lookups of the local batch that fall into a slice's rows, as rows of the slice. Where
  /// slices are not deduplicated or hold whole tables, the parts that are not needed stay empty.
  struct Selection {
    Buffer lengths, rows, offsets;
    Buffer factors;  ///< 1 / size of the whole bag
    // Where each distinct id travels once, or each distinct list is pooled once: these ids, offsets
    // of bags among them, the distinct id of each lookup or the list of each sample.
    Buffer distinct, distinct_offsets, inverse;
    Buffer lists;   ///< one number: how many distinct lists there are
    Buffer packed;  ///< the rows of distinct ids, of one holder after another; those of lists
    explicit Selection(Ledger* ledger);
  };

  DlrmState(const ExecutionGraph& graph, std::int32_t rank, std::shared_ptr<const RowOrder> order,
            std::shared_ptr<TieredCaches> tiers, Ledger& ledger);
  /// The local batch's bags of a slice's table, as the workload numbers rows.
  [[nodiscard]] kernels::Bags local_bags(const OpContext& c, const EmbeddingSlice& s) const;
  /// The same, or their distinct lists where a slice pools these once; bags behind the last of them
  /// are empty.
  [[nodiscard]] kernels::Bags pooled_bags(const OpContext& c, std::int32_t slice) const;
  /// Finds what of the local batch falls into a slice; the bags below read it until the next batch.
  void select_rows(const OpContext& c, std::int32_t slice);
  /// The local batch's bags of a slice, with rows counted from its first.
  [[nodiscard]] kernels::Bags looked_up_bags(const OpContext& c, std::int32_t slice) const;
  /// Bags of them that travel: the same, or each distinct row once.
  [[nodiscard]] kernels::Bags slice_bags(const OpContext& c, std::int32_t slice) const;
  [[nodiscard]] kernels::RowSplit row_split(std::int32_t slice) const;
  /// Whether a slice's rows travel once, however often a rank looks them up.
  [[nodiscard]] bool deduplicates(const EmbeddingSlice& s) const {
    return dedup && is_sequence(s.route) && !s.pools_lists_once();
  }
  /// The bags that reached a shard.
  [[nodiscard]] kernels::Bags shard_bags(EmbeddingRoute route, std::size_t shard) const;

  std::vector<std::vector<Lists>> lists;  ///< by route and shard
  /// What tells peers about this rank's bags: lengths as they are, or what else travels with them.
  [[nodiscard]] const Buffer& travelling_lengths() const {
    return sends_more ? sent_lengths : part_lengths;
  }

  /// Lengths of every part's bags by (peer, slice), and with what else travels; where the ids of
  /// each bag stand; the same by (slice, holder), as the kernels make and read them.
  Buffer part_lengths, part_offsets, sent_lengths, slice_lengths, slice_starts, whole, marked;
  Buffer sent_ids, lengths, ids, counts, host_counts;
  Buffer boundaries_on_device, part_firsts, arrival_firsts;
  Buffer sent_rows, shard_rows, shard_gradient;    ///< unpooled rows, in the format they travel in
  std::vector<std::size_t> first_slice_list;       ///< by slice: its first list among slice_lengths
  std::vector<const std::int64_t*> boundaries_of;  ///< by slice, device; null without
  Counts row_counts;
  bool sends_more = false;  ///< sizes of whole bags, or marks where there is no list
  bool dedup;
  std::vector<Selection> selections;  ///< by slice
  std::shared_ptr<const RowOrder> order;
  std::shared_ptr<TieredCaches> tiers;

 private:
  void upload_constants();
  void find_lists(const OpContext& c, std::int32_t slice);
  void select_range(const OpContext& c, std::int32_t slice);
  void find_distinct(const OpContext& c, std::int32_t slice);
};

/// The current batch and, in a pipelined program, the next one.
struct DlrmBatches : OpState {
  DlrmBatches(const ExecutionGraph& graph, const Program& program, std::int32_t rank,
              Ledger& ledger);
  void begin_next_batch() override { std::swap(now, next); }
  [[nodiscard]] std::vector<RowTraffic> tier_traffic() const override;
  std::unique_ptr<DlrmState> now, next;
};

/// The lists of the batch an op works on.
inline DlrmState& dlrm_state(const OpContext& c) {
  auto& batches = static_cast<DlrmBatches&>(*c.state);
  return c.has(op_flags::kNextBatch) ? *batches.next : *batches.now;
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

}  // namespace stepcast::runtime::cuda
