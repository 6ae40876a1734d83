#include <map>
#include <memory>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/activation.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/loss.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/position.h"
#include "runtime/cuda/kernels/token.h"
#include "runtime/cuda/ops_attention.h"
#include "runtime/rotary_table.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::ConstMatrixView;
using kernels::ConstVector;
using kernels::MatrixView;
using kernels::Vector;

constexpr float kEpsilon = 1e-5F;

std::int64_t tensor_coordinate(const OpContext& c) { return c.rank % c.graph.mesh.tensor; }

/// Angles of rotary positions in device memory, by head width: made once.
struct TransformerState : OpState {
  explicit TransformerState(Ledger& of) : ledger(of) {}
  Ledger& ledger;
  std::map<std::int64_t, Buffer> rotary;
};

const float* rotary_table(OpContext& c, std::int64_t head_dim) {
  auto& state = static_cast<TransformerState&>(*c.state);
  auto found = state.rotary.find(head_dim);
  if (found == state.rotary.end()) {
    const RotaryTable table(c.graph.inputs.batch.sequence, head_dim);
    Buffer buffer(Buffer::Kind::kDevice, "rotary angles", &state.ledger);
    const std::size_t bytes = table.values().size() * sizeof(float);
    copy_in(buffer.reserve(bytes), table.values().data(), bytes, "rotary angles");
    found = state.rotary.emplace(head_dim, std::move(buffer)).first;
  }
  return found->second.as<float>();
}

void activation_forward(OpContext& c) {
  const ConstVector bias = c.op.inputs > 1 ? ConstVector(c.vector(c.input(1))) : ConstVector();
  kernels::activation_forward(c.op.as<ActivationAttributes>().activation, c.input(0), bias,
                              c.output(0), c.stream);
}

void activation_backward(OpContext& c) {
  const ConstVector bias = c.op.inputs > 2 ? ConstVector(c.vector(c.input(2))) : ConstVector();
  const Vector d_bias = c.op.outputs > 1 ? c.vector(c.output(1)) : Vector{};
  const MatrixView dx = c.output(0);
  const std::size_t bytes =
      d_bias.data != nullptr ? kernels::activation_backward_workspace(dx.rows, dx.columns) : 0;
  kernels::activation_backward(c.op.as<ActivationAttributes>().activation, c.input(1), bias,
                               c.input(0), dx, d_bias, c.workspace(bytes), c.stream);
}

void norm_forward(OpContext& c) {
  const ConstVector beta = c.op.inputs > 2 ? ConstVector(c.vector(c.input(2))) : ConstVector();
  kernels::norm_forward(c.op.as<NormAttributes>().norm, c.input(0), c.vector(c.input(1)), beta,
                        kEpsilon, c.output(0), c.floats(c.output(1)), c.stream);
}

void norm_backward(OpContext& c) {
  const MatrixView dx = c.output(0);
  const ConstMatrixView residual =
      c.op.inputs > 4 ? ConstMatrixView(c.input(4)) : ConstMatrixView();
  const Vector d_beta = c.op.outputs > 2 ? c.vector(c.output(2)) : Vector{};
  kernels::norm_backward(
      c.op.as<NormAttributes>().norm, c.input(0), c.input(1), c.vector(c.input(2)),
      c.floats(c.input(3)), residual, dx, c.vector(c.output(1)), d_beta,
      c.workspace(kernels::norm_backward_workspace(dx.rows, dx.columns)), c.stream);
}

void rotate(OpContext& c, int direction) {
  const kernels::Index heads = c.op.shape[1];
  const kernels::Index head_dim = c.op.shape[2];
  kernels::rotate(rotary_table(c, head_dim), c.graph.inputs.batch.sequence, head_dim, direction,
                  c.output(0).block(0, heads * head_dim), c.stream);
}

void rope_forward(OpContext& c) { rotate(c, 1); }
void rope_backward(OpContext& c) { rotate(c, -1); }

/// Tokens of this micro-batch: `sequence + 1` of each sample, inputs the first `sequence` of them,
/// targets the last.
kernels::TokenRows tokens_of(const OpContext& c, bool targets) {
  const std::int64_t sequence = c.graph.inputs.batch.sequence;
  const auto first =
      static_cast<std::size_t>(c.microbatch * c.graph.inputs.batch.micro * (sequence + 1));
  const auto count = static_cast<std::size_t>(c.graph.inputs.batch.micro * (sequence + 1));
  STEPCAST_CHECK(c.batch.layout().tokens.count >= first + count,
                 "a batch of {} tokens has no micro-batch {}", c.batch.layout().tokens.count,
                 c.microbatch);
  return {c.batch.list<std::int32_t>(c.batch.layout().tokens) + first + (targets ? 1 : 0), sequence,
          sequence + 1};
}

void token_embedding_forward(OpContext& c) {
  const MatrixView table = c.input(0);
  const MatrixView out = c.output(0);
  kernels::token_embedding_forward(table, tensor_coordinate(c) * table.rows, tokens_of(c, false),
                                   out, c.stream);
  if (c.op.inputs > 1) {
    const MatrixView positions = c.input(1);
    kernels::add_positions(positions,
                           out.block(tensor_coordinate(c) * positions.columns, positions.columns),
                           c.stream);
  }
}

void token_embedding_backward(OpContext& c) {
  const MatrixView gradient = c.input(0);
  const MatrixView table = c.output(0);
  const std::size_t bytes =
      kernels::token_embedding_backward_workspace(gradient.rows, table.rows, table.columns);
  kernels::token_embedding_backward(gradient, tensor_coordinate(c) * table.rows,
                                    tokens_of(c, false), table, c.workspace(bytes), c.stream);
  if (c.op.outputs > 1) {
    const MatrixView positions = c.output(1);
    kernels::add_positions_backward(
        gradient.block(tensor_coordinate(c) * positions.columns, positions.columns), positions,
        c.stream);
  }
}

// Cross-entropy over a vocabulary split by tensor ranks.

void cross_entropy_max(OpContext& c) {
  kernels::cross_entropy_maximum(c.input(0), c.floats(c.output(0)), c.stream);
}

void cross_entropy_sum(OpContext& c) {
  const MatrixView logits = c.input(0);
  float* sums = c.floats(c.output(0));
  kernels::cross_entropy_sum(logits, tensor_coordinate(c) * logits.columns, tokens_of(c, true),
                             c.floats(c.input(1)), sums, sums + logits.rows, c.stream);
}

void cross_entropy_loss(OpContext& c) {
  const MatrixView logits = c.output(0);
  const float* sums = c.floats(c.input(2));
  const float factor = 1.0F / (static_cast<float>(c.graph.inputs.batch.global) *
                               static_cast<float>(c.graph.inputs.batch.sequence));
  auto work = c.workspace(kernels::loss_workspace(logits.rows) + 256);
  // Every tensor rank sees the whole loss: one of them counts it.
  auto* unused = static_cast<double*>(work.data);
  const bool counts = tensor_coordinate(c) == 0;
  work = {static_cast<char*>(work.data) + 256, work.bytes - 256};
  kernels::cross_entropy_loss(logits, tensor_coordinate(c) * logits.columns, tokens_of(c, true),
                              c.floats(c.input(1)), sums, sums + logits.rows, factor, logits,
                              counts ? c.loss : unused, work, c.stream);
}

}  // namespace

OpFamily transformer_ops() {
  return {{STEPCAST_TRANSFORMER_OPS(STEPCAST_OP)},
          [](const ExecutionGraph&, const Program&, std::int32_t, Ledger& ledger)
              -> std::unique_ptr<OpState> { return std::make_unique<TransformerState>(ledger); }};
}

}  // namespace stepcast::runtime::cuda
