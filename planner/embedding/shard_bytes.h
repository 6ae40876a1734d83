#pragma once
#include <cstdint>
#include <string_view>

#include "core/graph/embedding_placement.h"
#include "core/graph/optimizer_state.h"
#include "core/job/job.h"

namespace stepcast::planner {

/// Bytes of a piece by purpose.
struct BytesByPurpose {
  double weights = 0, optimizer = 0, gradients = 0, buffers = 0;
  [[nodiscard]] double total() const { return weights + optimizer + gradients + buffers; }
};

/// One piece of a table as a rank holds it.
struct HeldPiece {
  EmbeddingRoute route = EmbeddingRoute::kExchange;  ///< its kind decides the buffers
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double share = 1;  ///< of the table's lookups that arrive here (upper estimate)
  std::int64_t group = 1;
  /// Pooled rows of distinct lists, copied to the samples that have them (EmbeddingSlice).
  bool pools_lists_once = false;
};
/// The piece of a slice that a rank holds.
HeldPiece held_piece(const EmbeddingSlice& slice, std::int32_t rank, double share);

/// Bytes of a held piece on its rank: weights, state, gradient, and the buffers of the exchange
/// that grow with what the rank holds (outputs and their gradients for the global batch, arriving
/// ids). Weights, state and gradient are those of the graph, to the byte; buffers are counted as
/// all alive at once: an upper bound of the step's peak (tests/planner/planner_test.cpp).
BytesByPurpose held_bytes(const Job& job, const EmbeddingTable& table, const HeldPiece& piece);

/// Bytes on every rank because a table's piece exists somewhere: what arrives for the local batch,
/// and the ids sent. `piece.share` of the table's lookups go to the piece; where it pools distinct
/// lists once, `listed` rows arrive for each sample (holders, times the share of lists that are
/// distinct).
double arriving_bytes(const Job& job, const EmbeddingTable& table, const HeldPiece& piece,
                      double listed = 1);

/// Row id -> place in the order of popularity, on each rank that sends ids: 4 bytes a row, 8 beyond
/// 2^32 rows.
double remap_bytes(const EmbeddingTable& table);

/// The tier that is the host's own memory. A cache that counts lookups (lfu) keeps a counter there
/// for every row of its shard.
constexpr std::string_view kHostTier = "ddr";
constexpr double kCounterBytes = 4;

/// Dense model of one rank: parameters, gradients, optimizer state, activations (upper estimate).
double dense_bytes(const Job& job);

}  // namespace stepcast::planner
