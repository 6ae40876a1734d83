#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/cpu/kernels/embedding.h"
#include "runtime/cpu/op_context.h"
#include "workloads/embedding_plan_layout.h"

namespace stepcast::runtime::cpu {

/// What the DLRM ops of one rank keep: who holds which slice, and the index lists of the batch
/// under way. Lists grow to the largest batch seen and stay.
///
/// Ids travel as [peer][slice the peer holds][bag]; rows of sequence tables come back in the same
/// order, their gradients likewise.
struct DlrmState {
  /// The ids of one slice that go to one of its holders.
  struct Part {
    std::int32_t slice = 0;
    std::int32_t peer = 0;
    std::int64_t lengths =
        0;  ///< offset in `sent_lengths`: batch lengths, then the whole bags' if `whole`
    std::int64_t ids = 0;           ///< offset in `sent_ids`
    std::int64_t count = 0;         ///< ids of this batch
    std::int64_t row_elements = 0;  ///< offset of its rows in `rows_here`, sequence tables only
  };
  /// The ids of the global batch that reach one shard of this rank.
  struct Shard {
    std::int32_t slice = 0;
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> offsets;     ///< one bag per sample, in the order of its embedding op
    std::vector<std::int64_t> peer_begin;  ///< by peer: first id; only the rank order has it
    std::vector<std::int64_t>
        row_elements;  ///< by peer: offset of its rows in `rows_there`, sequence tables only
    std::vector<float> factors;  ///< 1 / bag size of a mean split by rows
  };
  struct Counts {
    std::vector<std::int64_t> send, send_offsets, receive, receive_offsets;
    explicit Counts(std::size_t peers = 0)
        : send(peers), send_offsets(peers), receive(peers), receive_offsets(peers) {}
    void set_offsets();
  };

  DlrmState(const Job& job, std::int32_t rank);
  [[nodiscard]] const workloads::EmbeddingSlice& slice(std::int32_t s) const {
    return layout.slices[static_cast<std::size_t>(s)];
  }
  [[nodiscard]] const EmbeddingTable& table(const workloads::EmbeddingSlice& s) const {
    return workload.tables[static_cast<std::size_t>(s.table)];
  }
  /// Means that are split by rows: holders sum, and scale by the whole bag's size.
  [[nodiscard]] bool whole_lengths(const workloads::EmbeddingSlice& s) const {
    return s.row_split() && table(s).mode == PoolingMode::kMean;
  }
  /// The local batch's bags of a slice's table.
  [[nodiscard]] kernels::Bags local_bags(const OpContext& c,
                                         const workloads::EmbeddingSlice& s) const;
  /// Shards of one route, in the order of its group.
  std::vector<Shard>& shards_of(workloads::EmbeddingRoute route) {
    return shards[static_cast<std::size_t>(route)];
  }

  const DlrmWorkload& workload;
  workloads::EmbeddingLayout layout;
  std::int32_t rank;
  std::int64_t batch;  ///< local
  std::int64_t global;

  std::vector<Part> parts;                          ///< by (peer, slice)
  std::vector<std::vector<std::int32_t>> parts_of;  ///< by slice: its parts in the order of holders
  std::vector<std::vector<std::int64_t>> boundaries;  ///< by slice: first rows of a block split
  std::vector<std::vector<std::int64_t>> widths;      ///< by route and rank: columns held
  std::vector<std::vector<Shard>> shards;             ///< by route
  std::vector<std::int32_t> sent_lengths, lengths;
  std::vector<std::int64_t> sent_ids, ids, counted, cursors;
  std::vector<float> rows_here,
      rows_there;  ///< unpooled rows: of the local batch; of this rank's shards
  std::vector<float> shard_gradient;
  Counts length_counts, id_counts, row_counts;
  kernels::EmbeddingWorkspace workspace;
};

/// The batch under way and, in a pipelined program, the next one.
struct DlrmBatches : OpState {
  DlrmBatches(const Job& job, const Program& program, std::int32_t rank);
  void begin_next_batch() override { std::swap(now, next); }
  std::unique_ptr<DlrmState> now, next;
};

/// The lists of the batch an op works on.
inline DlrmState& dlrm_state(OpContext& c) {
  auto& batches = static_cast<DlrmBatches&>(*c.state);
  return (c.op.flags & op_flags::kNextBatch) != 0 ? *batches.next : *batches.now;
}

void index_pack(OpContext& c);
void index_unpack(OpContext& c);
/// Lengths (int32), ids (int64), or rows of the route in shape[2].
void all_to_all_v(OpContext& c);
void embedding_forward(OpContext& c);
void embedding_backward(OpContext& c);
void embedding_gradient(OpContext& c);
void sequence_pool_forward(OpContext& c);
void sequence_pool_backward(OpContext& c);

}  // namespace stepcast::runtime::cpu
