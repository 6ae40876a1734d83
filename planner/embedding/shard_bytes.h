#pragma once
#include <cstdint>
#include <string_view>

#include "core/job/job.h"

namespace stepcast::planner {

/// Bytes of one rank by purpose; the columns of the ledger (CONTRACT section 5).
struct BytesByPurpose {
  double weights = 0, optimizer = 0, gradients = 0, cache = 0, remap = 0, buffers = 0;
  double dense = 0;  ///< the dense model: parameters, gradients, state, activations
  [[nodiscard]] double total() const {
    return weights + optimizer + gradients + cache + remap + buffers + dense;
  }
  BytesByPurpose& operator+=(const BytesByPurpose& o);
};

/// How a piece of a table is held; decides its buffers.
enum class Holding : std::uint8_t {
  kReplicated,   ///< every rank: dense gradient, optimizer on all rows
  kLocal,        ///< the only rank
  kExchanged,    ///< pooled rows of whole columns leave by all-to-all
  kReduced,      ///< row-split over all ranks: partial sums by reduce-scatter
  kNodeReduced,  ///< row-split over a group: reduce-scatter inside, all-to-all across
  kUnpooled,     ///< sequence rows
  kListed,       ///< pooled rows of distinct lists, copied to the samples that have them
};

/// One piece as a rank holds it.
struct HeldPiece {
  Holding holding = Holding::kExchanged;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double share = 1;  ///< of the table's lookups that arrive here (upper estimate)
  std::int64_t group = 1;
};

/// Bytes of a held piece on its rank: weights, state, gradient, and the buffers of the exchange
/// that grow with what the rank holds (outputs and their gradients for the global batch, arriving
/// ids). As workloads/dlrm allocates them, all alive at once: an upper bound of the step's peak.
BytesByPurpose held_bytes(const Job& job, const EmbeddingTable& table, const HeldPiece& piece);

/// Bytes on every rank because a table's piece exists somewhere: what arrives for the local batch,
/// and the ids sent. `share` of the table's lookups go to the piece; of kListed, `listed` rows
/// arrive for each sample (holders, times the share of lists that are distinct).
BytesByPurpose arriving_bytes(const Job& job, const EmbeddingTable& table, Holding holding,
                              std::int64_t columns, double share = 1, double listed = 1);

/// Row id -> place in the order of popularity, on each rank that sends ids: 4 bytes a row, 8 beyond
/// 2^32 rows.
double remap_bytes(const EmbeddingTable& table);

/// The tier that is the host's own memory. A cache that counts lookups (lfu) keeps a counter there
/// for every row of its shard.
constexpr std::string_view kHostTier = "ddr";
constexpr double kCounterBytes = 4;

/// Dense model of one rank: parameters, gradients, optimizer state, activations (upper estimate).
double dense_bytes(const Job& job);

/// Optimizer state of one row of `columns` columns.
double state_row_bytes(OptimizerKind kind, std::int64_t columns);

}  // namespace stepcast::planner
