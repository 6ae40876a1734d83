#pragma once
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/graph/embedding_placement.h"
#include "core/graph/program.h"

namespace stepcast::runtime {

/// Place of each row in the order of popularity, by table; empty where no slice of a plan needs it.
using RowRemaps = std::vector<std::vector<std::uint32_t>>;
/// Errors: InputError for a table of more than 2^32 rows.
RowRemaps row_remaps(const ExecutionGraph& graph);

/// Who sends which lookups to whom, as one rank sees it: the bookkeeping of an index exchange on
/// the host, whatever memory the lists themselves are in.
///
/// Ids travel as [peer][slice the peer holds][bag]; rows of sequence tables come back in the same
/// order, and so are their gradients. Where distinct lists are pooled once, as many bags follow
/// each other as there are such lists; the lengths of the others are kNoBag. Where there are copies,
/// a rank asks the one of its own group.
struct EmbeddingExchange {
  /// Length of a sample's bag whose list another sample has too.
  static constexpr std::int32_t kNoBag = -1;
  /// The ids of one slice that go to one of its holders.
  struct Part {
    std::int32_t slice = 0;
    std::int32_t peer = 0;
    /// Offset among the lengths sent: batch lengths, then the whole bags' if `whole_lengths`.
    std::int64_t lengths = 0;
    std::int64_t ids = 0;    ///< offset among the ids sent
    std::int64_t count = 0;  ///< ids of this batch
    std::int64_t rows = 0;   ///< that come back for them: one for each id or distinct list
    std::int64_t row_elements =
        0;  ///< offset of its rows when they come back; sequence tables only
  };
  /// The ids of the global batch that reach one shard of this rank.
  struct Shard {
    std::int32_t slice = 0;
    std::vector<std::int64_t> begin;         ///< by peer: its first id among the shard's
    std::vector<std::int64_t> count;         ///< by peer
    std::vector<std::int64_t> bags;          ///< by peer: its samples, or their distinct lists
    std::vector<std::int64_t> first_bag;     ///< by peer: among the shard's
    std::vector<std::int64_t> row_elements;  ///< by peer: offset of its rows as they travel;
                                             ///< sequence tables only
  };
  /// The lengths of one peer's bags for one shard, in the order in which they arrive; its ids
  /// arrive in the same order.
  struct Arrival {
    EmbeddingRoute route{};
    std::size_t shard = 0;  ///< of the route
    std::int32_t peer = 0;
    std::int64_t lengths = 0;  ///< offset among the lengths received
    std::int64_t ids = 0;      ///< offset among the ids received
    std::int64_t count = 0;    ///< ids
    std::int64_t bags = 0;     ///< of its samples, or of their distinct lists
  };
  struct Counts {
    std::vector<std::int64_t> send, send_offsets, receive, receive_offsets;
    explicit Counts(std::size_t peers = 0)
        : send(peers), send_offsets(peers), receive(peers), receive_offsets(peers) {}
    void set_offsets();
    /// Sent to members other than `own`.
    [[nodiscard]] double bytes_to_others(int own, double element_bytes) const;
  };

  EmbeddingExchange(const ExecutionGraph& graph, std::int32_t rank);

  [[nodiscard]] const EmbeddingSlice& slice(std::int32_t s) const {
    return layout.slices[static_cast<std::size_t>(s)];
  }
  [[nodiscard]] const EmbeddingTable& table(const EmbeddingSlice& s) const {
    return tables[static_cast<std::size_t>(s.table)];
  }
  /// Means that are split by rows: holders sum, and scale by the whole bag's size.
  [[nodiscard]] bool whole_lengths(const EmbeddingSlice& s) const {
    return s.splits_bags() && table(s).mode == PoolingMode::kMean;
  }
  /// Rows of one peer's ids as they travel on a sequence route.
  [[nodiscard]] std::int64_t rows_of(const Shard& shard, std::size_t peer) const {
    return slice(shard.slice).pools_lists_once() ? shard.bags[peer] : shard.count[peer];
  }
  /// Bags of all peers that reach a shard (after `place_arrivals`).
  [[nodiscard]] static std::int64_t bags_of(const Shard& shard) {
    return std::accumulate(shard.bags.begin(), shard.bags.end(), std::int64_t{0});
  }
  /// Shards of one route, in the order of its group.
  std::vector<Shard>& shards_of(EmbeddingRoute route) {
    return shards[static_cast<std::size_t>(route)];
  }

  /// Places the ids of each part and counts those that each peer gets, from the parts' counts, and from
  /// their rows where distinct lists are pooled once.
  void place_parts();
  /// The same for what arrives, from the arrivals' counts and bags.
  void place_arrivals();
  /// Elements of pooled rows that members exchange on a route, and of unpooled ones (after both
  /// `place_` functions). Offsets are set.
  void set_pooled_counts(EmbeddingRoute route, bool forward, Counts& n) const;
  void set_sequence_counts(bool forward, Counts& n,
                           EmbeddingRoute route = EmbeddingRoute::kSequence) const;

  const std::vector<EmbeddingTable>& tables;
  const EmbeddingPlacement& layout;
  std::int32_t rank;
  std::int64_t batch;  ///< local
  std::int64_t global;

  std::vector<Part> parts;                          ///< by (peer, slice)
  std::vector<std::vector<std::int32_t>> parts_of;  ///< by slice: its parts in the order of holders
  /// By slice: first rows of a block split, from the first of its range.
  std::vector<std::vector<std::int64_t>> boundaries;
  std::vector<std::vector<std::int64_t>> widths;  ///< by route and rank: columns held
  std::vector<std::vector<Shard>> shards;         ///< by route
  std::vector<Arrival> arrivals;
  Counts length_counts, id_counts;
  std::int64_t lengths_sent = 0, lengths_received = 0;
  std::int64_t ids_sent = 0, ids_received = 0;  ///< of the batch
  /// Elements of unpooled rows: of the local batch; of this rank's shards. Route by route.
  std::int64_t rows_here = 0, rows_there = 0;

 private:
  [[nodiscard]] std::int64_t place_of(std::int32_t peer, EmbeddingRoute route) const;
};

}  // namespace stepcast::runtime
