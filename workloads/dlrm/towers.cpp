#include "core/error.h"
#include "workloads/dlrm/step.h"

// Towers (SPTT, arXiv 2403.00877, section 3): pooled rows are exchanged inside each node first, so
// that one rank holds all of the node's tables for the samples of its peers in other nodes, then
// between ranks of equal place. With compression a product makes the node's columns narrower
// between the two; without it a node sends as many bytes as it would flat, in larger messages.

namespace stepcast::workloads {

std::int64_t LayeredStep::tower_width(std::int64_t h) const {
  std::int64_t width = 0;
  for (std::int64_t i = 0; i < layout_.node; ++i) {
    width +=
        layout_.width(static_cast<std::int32_t>(h * layout_.node + i), EmbeddingRoute::kExchange);
  }
  return width;
}

std::int64_t LayeredStep::narrow_width(std::int64_t h) const {
  const std::int64_t width = tower_width(h);
  if (width % compression_ != 0) {
    throw InputError(
        "job: embedding.tower_compression",
        fmt::format("{} does not divide the {} columns of the tables on node {}; use a "
                    "divisor, or another plan",
                    compression_, width, h));
  }
  return width / compression_;
}

void LayeredStep::declare_tower() {
  if (!job_.sptt || compression_ == 1) {
    return;
  }
  for (const EmbeddingSlice& s : layout_.slices) {
    if (s.route != EmbeddingRoute::kExchange) {
      throw InputError("job: embedding.tower_compression",
                       fmt::format("table '{}' is not on one rank whole or by columns, so no tower "
                                   "has it; use embedding.plan table_wise",
                                   table(s).name));
    }
  }
  const std::int64_t h = rank_ / layout_.node;
  tower_ = add_parameter("tower.weight", tower_width(h), narrow_width(h),
                         1.0 / static_cast<double>(tower_width(h) + 1), -1, true);
  const std::int64_t rows = global_batch_ / layout_.node;
  compressed_ = b_.activation("tower", rows, narrow_width(h), compute_);
  d_compressed_ = b_.activation("tower.gradient", rows, narrow_width(h), compute_);
}

LayeredStep::OpEdit LayeredStep::tower_exchange(const char* name, bool backward,
                                                std::int32_t communicator,
                                                const std::vector<double>& sent, TensorId in,
                                                TensorId out) {
  double elements = 0;
  for (const double e : sent) {
    elements += e;
  }
  return w_
      .op(Channel::kExchange, OpKind::kAllToAllV, fmt::format("embedding.exchange.{}", name),
          {static_cast<std::int64_t>(elements), row_elements(EmbeddingRoute::kExchange)})
      .format(backward ? job_.formats.all_to_all_backward : job_.formats.all_to_all_forward)
      .traffic(backward ? TrafficKind::kGradients : TrafficKind::kOutputs)
      .communicator(communicator)
      .attributes(CollectiveAttributes{.exchange = b_.exchange({.send_elements = sent}),
                                       .route = EmbeddingRoute::kExchange})
      .in({in})
      .out({out});
}

void LayeredStep::exchange_towers(bool next) {
  Route& of = route(EmbeddingRoute::kExchange);
  const std::int64_t members = layout_.node;
  const std::int64_t nodes = devices() / members;
  const std::int64_t h = rank_ / members;
  const bool compresses = compression_ > 1;
  const auto rows = static_cast<double>(global_batch_ / members);
  auto shuffle = tower_exchange(
      "shuffle", false, comm_.tower.inside,
      std::vector<double>(static_cast<std::size_t>(members), rows * static_cast<double>(of.width)),
      of.output, of.between);
  mark(shuffle, next);
  w_.follows(of.ready);
  OpId start = kNoOp;
  if (compresses) {
    const OpId arrived = w_.written();
    auto product = w_.compute(OpKind::kGemm, "tower.gemm",
                              {global_batch_ / members, narrow_width(h), tower_width(h), 1})
                       .in({of.between, weight(tower_)})
                       .out({compressed_});
    mark(product, next);
    w_.follows(arrived);
    start = w_.written();
  }
  auto across = tower_exchange("all_to_all", false, comm_.tower.across,
                               std::vector<double>(static_cast<std::size_t>(nodes),
                                                   static_cast<double>(batch_ * narrow_width(h))),
                               compresses ? compressed_ : of.between, of.arrived);
  mark(across, next);
  w_.follows(start);
  of.ready = next ? kNoOp : w_.written();
}

void LayeredStep::exchange_tower_gradients(OpId start) {
  Route& of = route(EmbeddingRoute::kExchange);
  const std::int64_t members = layout_.node;
  const std::int64_t nodes = devices() / members;
  const std::int64_t h = rank_ / members;
  const bool compresses = compression_ > 1;
  std::vector<double> to_nodes, to_members;
  for (std::int64_t n = 0; n < nodes; ++n) {
    to_nodes.push_back(static_cast<double>(batch_ * narrow_width(n)));
  }
  for (std::int64_t m = 0; m < members; ++m) {
    const auto member = static_cast<std::int32_t>(h * members + m);
    to_members.push_back(static_cast<double>(global_batch_ / members *
                                             layout_.width(member, EmbeddingRoute::kExchange)));
  }
  tower_exchange("gradient.all_to_all", true, comm_.tower.across, to_nodes, of.d_arrived,
                 compresses ? d_compressed_ : of.d_between);
  w_.follows(start);
  OpId ready = kNoOp;
  if (compresses) {
    const OpId arrived = w_.written();
    const std::int64_t rows = global_batch_ / members;
    const std::int64_t wide = tower_width(h);
    const std::int64_t narrow = narrow_width(h);
    w_.compute(OpKind::kGemm, "tower.weight_gradient", {wide, narrow, rows, 1})
        .flags(op_flags::kTransposeA)
        .in({of.between, d_compressed_})
        .out({gradient(tower_)});
    w_.follows(arrived);
    gradients_done({tower_});
    w_.compute(OpKind::kGemm, "tower.input_gradient", {rows, wide, narrow, 1})
        .flags(op_flags::kTransposeB)
        .in({d_compressed_, weight(tower_)})
        .out({of.d_between});
    ready = w_.written();
  }
  tower_exchange("gradient.shuffle", true, comm_.tower.inside, to_members, of.d_between,
                 of.d_output);
  w_.follows(ready);
  of.d_ready = w_.written();
}

/// Output of the towers, node by node.
std::vector<ColumnBlock> LayeredStep::tower_blocks(std::int32_t operand, bool forward) const {
  std::vector<ColumnBlock> blocks;
  std::int64_t column = before_tables_;
  std::int64_t base = 0;
  for (std::int64_t h = 0; h < devices() / layout_.node; ++h) {
    const std::int64_t width = narrow_width(h);
    ColumnBlock block{.columns = width};
    (forward ? block.input : block.output) = operand;
    (forward ? block.from_offset : block.to_offset) = base;
    (forward ? block.from_pitch : block.to_pitch) = width;
    (forward ? block.to_offset : block.from_offset) = column;
    (forward ? block.to_pitch : block.from_pitch) = stack_width_;
    blocks.push_back(block);
    base += batch_ * width;
    column += width;
  }
  return blocks;
}

}  // namespace stepcast::workloads
