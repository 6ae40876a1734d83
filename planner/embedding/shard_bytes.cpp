#include "planner/embedding/shard_bytes.h"

#include <algorithm>
#include <cmath>

#include "core/job/layers.h"
#include "core/numbers.h"
#include "simulator/reports/framework_memory.h"
#include "workloads/embedding_plan/embedding_tiers.h"

namespace stepcast::planner {
namespace {

constexpr double kLengthBytes = 4;  // int32

double element_bytes(Format f) { return bits_per_element(f, 1024) / 8; }

/// Forward and backward copy of an activation on the wire.
double both_ways(const Job& job) {
  return element_bytes(job.formats.all_to_all_forward) +
         element_bytes(job.formats.all_to_all_backward);
}

/// Bytes that the allocator loses on activations.
double lost_bytes(const Job& job, double activations) {
  return activations * simulator::lost_share(job.system.device);
}

}  // namespace

HeldPiece held_piece(const EmbeddingSlice& slice, std::int32_t rank, double share) {
  return {.route = slice.route,
          .rows = held_rows(slice, rank).rows,
          .columns = slice.dim,
          .share = share,
          .group = slice.members(),
          .pools_lists_once = slice.pools_lists_once()};
}

BytesByPurpose held_bytes(const Job& job, const EmbeddingTable& table, const HeldPiece& piece) {
  BytesByPurpose b;
  const double global = real(job.batch.global);
  const double local = global / real(job.devices);
  const double columns = real(piece.columns * table.feature_count());  // of what is pooled
  b.weights = format_bytes(job.row_format(table), piece.rows, piece.columns).base();
  b.weights += table.keyed() ? real(piece.rows) * workloads::KeyedRows::kBytes : 0;
  b.optimizer = real(piece.rows) * state_row_bytes(job.embedding_optimizer, piece.columns);
  if (is_synchronised(piece.route)) {
    b.gradients = format_bytes(job.formats.gradient, piece.rows, piece.columns).base();
  }
  const double lookups = std::ceil(global * table.pooling * piece.share);
  const double wire = both_ways(job);
  const double ids =
      lookups * table.id_bytes() + 2 * global * real(table.feature_count()) * kLengthBytes;
  switch (kind_of(piece.route)) {
    case EmbeddingRoute::kReplicated:
    case EmbeddingRoute::kLocal:
      b.buffers = 2 * local * columns * element_bytes(job.formats.compute);
      break;
    case EmbeddingRoute::kExchange:
    case EmbeddingRoute::kReduce:
      b.buffers = global * columns * wire + ids;
      break;
    case EmbeddingRoute::kNodeReduce:
    case EmbeddingRoute::kGroupReduce:
      b.buffers = (global + global / real(piece.group)) * columns * wire + ids;
      break;
    case EmbeddingRoute::kSequence:
    case EmbeddingRoute::kGroupSequence:
      b.buffers = piece.pools_lists_once ? global * columns * wire + ids
                                         : lookups * real(piece.columns) * wire + ids;
      break;
  }
  b.buffers += lost_bytes(job, b.buffers);
  return b;
}

double arriving_bytes(const Job& job, const EmbeddingTable& table, const HeldPiece& piece,
                      double listed) {
  if (is_local(piece.route)) {
    return 0;
  }
  const double local = real(job.batch.global) / real(job.devices);
  const double lookups = std::ceil(local * table.pooling * piece.share);
  const double wire = both_ways(job);
  const double bags = local * real(table.feature_count());
  const double columns = real(piece.columns);
  double bytes = lookups * table.id_bytes() + 2 * bags * kLengthBytes + bags * columns * wire;
  if (is_sequence(piece.route)) {
    const double rows = piece.pools_lists_once ? std::ceil(local * listed) : lookups;
    bytes += rows * columns * wire + 2 * bags * columns * element_bytes(job.formats.compute);
  }
  return bytes + lost_bytes(job, bytes);
}

double remap_bytes(const EmbeddingTable& table) {
  return real(table.rows) * (table.rows > (std::int64_t{1} << 32) ? 8 : 4);
}

double dense_bytes(const Job& job) {
  const LayeredWorkload& w = *job.workload.layered();
  const double local = real(job.batch.global) / real(job.devices);
  const double compute = element_bytes(job.formats.compute);
  const LayerList list = layers_of(w, job.parallel.tensor);
  const double parameters = real(parameter_count(list));
  // Values of the forward pass and their gradients; products of a linear layer are one tensor.
  double widths = real(list.input_width()) + 2;
  for (const Layer& l : list.layers) {
    const bool stays = l.kind == LayerKind::kLinear || l.kind == LayerKind::kReshape;
    const double items = real(scored_items(list, l) * job.batch.global);
    if (items > 0) {  // scores, which become their gradient; items of all ranks, and theirs
      widths += items * (real(list.input(l).rows) + 2 * real(list.input(l).columns) / local);
    }
    widths += l.out >= 0 ? (stays ? 2 : 4) * real(list.output(l).elements()) + 2 * real(l.rank) : 0;
  }
  const bool copied =  // in fp32, which the optimizer works on
      job.system.framework.fused_optimizer && job.formats.compute != Format::kFp32;
  const double state = state_parameter_bytes(job.dense_optimizer) + (copied ? 4 : 0);
  const double activations = local * widths * compute;
  return parameters * (compute + element_bytes(job.formats.gradient) + state) + activations +
         lost_bytes(job, activations);
}

}  // namespace stepcast::planner
