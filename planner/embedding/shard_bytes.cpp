#include "planner/embedding/shard_bytes.h"

#include <algorithm>
#include <cmath>

#include "core/graph/optimizer_state.h"
#include "core/job/layers.h"
#include "core/numbers.h"
#include "simulator/reports/framework_memory.h"

namespace stepcast::planner {
namespace {

constexpr double kLengthBytes = 4;  // int32

double element_bytes(Format f) { return bits_per_element(f, 1024) / 8; }

/// Forward and backward copy of an activation on the wire.
double both_ways(const Job& job) {
  return element_bytes(job.formats.all_to_all_forward) +
         element_bytes(job.formats.all_to_all_backward);
}

/// What the allocator loses on activations.
double lost_bytes(const Job& job, double activations) {
  return simulator::framework_memory(job.system.device, {}, Bytes(activations))
      .fragmentation.base();
}

}  // namespace

BytesByPurpose& BytesByPurpose::operator+=(const BytesByPurpose& o) {
  weights += o.weights;
  optimizer += o.optimizer;
  gradients += o.gradients;
  cache += o.cache;
  remap += o.remap;
  buffers += o.buffers;
  dense += o.dense;
  return *this;
}

double state_row_bytes(OptimizerKind kind, std::int64_t columns) {
  return stepcast::state_row_bytes(kind, real(columns));
}

BytesByPurpose held_bytes(const Job& job, const EmbeddingTable& table, const HeldPiece& piece) {
  BytesByPurpose b;
  const double global = real(job.batch.global);
  const double local = global / real(job.devices);
  const double columns = real(piece.columns * table.feature_count());  // of what is pooled
  b.weights = format_bytes(job.row_format(table), piece.rows, piece.columns).base();
  b.optimizer = real(piece.rows) * state_row_bytes(job.embedding_optimizer, piece.columns);
  const double lookups = std::ceil(global * table.pooling * piece.share);
  const double wire = both_ways(job);
  const double ids =
      lookups * table.id_bytes() + 2 * global * real(table.feature_count()) * kLengthBytes;
  switch (piece.holding) {
    case Holding::kReplicated:
      b.gradients = format_bytes(job.formats.gradient, piece.rows, piece.columns).base();
      b.buffers = 2 * local * columns * element_bytes(job.formats.compute);
      break;
    case Holding::kLocal:
      b.buffers = 2 * local * columns * element_bytes(job.formats.compute);
      break;
    case Holding::kExchanged:
    case Holding::kReduced:
    case Holding::kListed:
      b.buffers = global * columns * wire + ids;
      break;
    case Holding::kNodeReduced:
      b.buffers = (global + global / real(piece.group)) * columns * wire + ids;
      break;
    case Holding::kUnpooled:
      b.buffers = lookups * real(piece.columns) * wire + ids;
      break;
  }
  b.buffers += lost_bytes(job, b.buffers);
  return b;
}

BytesByPurpose arriving_bytes(const Job& job, const EmbeddingTable& table, Holding holding,
                              std::int64_t columns, double share, double listed) {
  BytesByPurpose b;
  if (holding == Holding::kReplicated || holding == Holding::kLocal) {
    return b;
  }
  const double local = real(job.batch.global) / real(job.devices);
  const double lookups = std::ceil(local * table.pooling * share);
  const double wire = both_ways(job);
  const double bags = local * real(table.feature_count());
  b.buffers = lookups * table.id_bytes() + 2 * bags * kLengthBytes + bags * real(columns) * wire;
  if (holding == Holding::kUnpooled || holding == Holding::kListed) {
    const double rows = holding == Holding::kUnpooled ? lookups : std::ceil(local * listed);
    b.buffers +=
        rows * real(columns) * wire + 2 * bags * real(columns) * element_bytes(job.formats.compute);
  }
  b.buffers += lost_bytes(job, b.buffers);
  return b;
}

double remap_bytes(const EmbeddingTable& table) {
  return real(table.rows) * (table.rows > (std::int64_t{1} << 32) ? 8 : 4);
}

double dense_bytes(const Job& job) {
  const DlrmWorkload& w = *job.workload.dlrm();
  const double local = real(job.batch.global) / real(job.devices);
  const double compute = element_bytes(job.formats.compute);
  const LayerList list = layers_of(w, job.parallel.tensor);
  const double parameters = real(parameter_count(list));
  // Values of the forward pass and their gradients; products of a linear layer are one tensor.
  double widths = real(list.input_width()) + 2;
  for (const Layer& l : list.layers) {
    const bool stays = l.kind == LayerKind::kLinear || l.kind == LayerKind::kReshape;
    widths += l.out >= 0 ? (stays ? 2 : 4) * real(list.output(l).elements()) + 2 * real(l.rank) : 0;
  }
  const double state = state_parameter_bytes(job.dense_optimizer);
  const double activations = local * widths * compute;
  return parameters * (compute + element_bytes(job.formats.gradient) + state) + activations +
         lost_bytes(job, activations);
}

}  // namespace stepcast::planner
