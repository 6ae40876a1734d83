#include <map>

#include "runtime/cuda/check.h"
#include "runtime/cuda/device_memory.h"
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/jagged_attention.h"
#include "runtime/cuda/kernels/layers.h"
#include "runtime/cuda/op_context.h"

// Ops of models given as lists of layers (workloads/layers/layers.cpp).

namespace stepcast::runtime::cuda {
namespace {

using kernels::Index;
using kernels::MatrixView;

/// An operand as the op's rows, whatever the shape of its tensor.
MatrixView rows_of(const MatrixView& m, Index rows, Index width) {
  return {m.data, m.format, rows, width};
}
MatrixView rows_of(const OpContext& c, const MatrixView& m) {
  return rows_of(m, c.op.shape[0], c.op.shape[1]);
}

/// One vector for each group of rows, `place` vectors behind the op's first column.
MatrixView vectors_of(const OpContext& c, const MatrixView& m, Index place = 0) {
  const auto [rows, width, group, first, pitch, unused] = c.op.shape;
  const Index elements = first + place * width;
  return {static_cast<char*>(m.data) + elements * static_cast<Index>(stored_bytes(m.format)),
          m.format, rows / group, width, pitch};
}

void transpose(OpContext& c) {
  const auto [vectors, inner, rows, columns, unused4, unused5] = c.op.shape;
  const MatrixView x = c.input(0);
  kernels::transpose({vectors / (rows * columns), rows, columns, inner}, x.data, x.format,
                     c.output(0).data, c.stream);
}

void multiply_forward(OpContext& c) {
  kernels::multiply_forward(rows_of(c, c.input(0)), rows_of(c, c.input(1)), rows_of(c, c.output(0)),
                            c.stream);
}

void multiply_backward(OpContext& c) {
  kernels::multiply_backward(rows_of(c, c.input(0)), rows_of(c, c.input(1)), rows_of(c, c.input(2)),
                             rows_of(c, c.output(0)), rows_of(c, c.output(1)), c.stream);
}

void softmax_forward(OpContext& c) {
  const MatrixView x = rows_of(c, c.input(0));
  kernels::softmax_rows(x, 1, 1, x.columns, 0, rows_of(c, c.output(0)), c.stream);
}

void softmax_backward(OpContext& c) {
  kernels::softmax_rows_backward(rows_of(c, c.input(1)), rows_of(c, c.input(0)), 1,
                                 rows_of(c, c.output(0)), c.stream);
}

void mean_rows_forward(OpContext& c) {
  const Index group = c.op.shape[2];
  kernels::mean_rows_forward(rows_of(c, c.input(0)), group,
                             rows_of(c.output(0), c.op.shape[0] / group, c.op.shape[1]), c.stream);
}

void mean_rows_backward(OpContext& c) {
  const Index group = c.op.shape[2];
  kernels::mean_rows_backward(rows_of(c.input(0), c.op.shape[0] / group, c.op.shape[1]), group,
                              rows_of(c, c.output(0)), c.stream);
}

void modulate_forward(OpContext& c) {
  kernels::modulate_forward(rows_of(c, c.input(0)), vectors_of(c, c.input(1)),
                            vectors_of(c, c.input(1), 1), c.op.shape[2], rows_of(c, c.output(0)),
                            c.stream);
}

void modulate_backward(OpContext& c) {
  kernels::modulate_backward(rows_of(c, c.input(0)), rows_of(c, c.input(1)),
                             vectors_of(c, c.input(2), 1), c.op.shape[2], rows_of(c, c.output(0)),
                             vectors_of(c, c.output(1)), vectors_of(c, c.output(1), 1), c.stream);
}

void gate_forward(OpContext& c) {
  kernels::gate_forward(rows_of(c, c.input(0)), rows_of(c, c.input(1)), vectors_of(c, c.input(2)),
                        c.op.shape[2], rows_of(c, c.output(0)), c.stream);
}

void gate_backward(OpContext& c) {
  kernels::gate_backward(rows_of(c, c.input(0)), rows_of(c, c.input(1)), vectors_of(c, c.input(2)),
                         c.op.shape[2], rows_of(c, c.output(0)), vectors_of(c, c.output(1)),
                         c.stream);
}

/// Begins and ends of the sequences of an op's rows, page-locked and on the device: what a step
/// reads stays until it has ended.
struct SequenceBounds {
  const Op* op;
  std::int32_t microbatch;
  Buffer host, device;

  [[nodiscard]] std::size_t rows() const {
    return static_cast<std::size_t>(op->shape[0] * op->shape[3]);
  }
  /// Draws those of a step into the host's copy.
  void draw(const ExecutionGraph& graph, std::int32_t rank, std::int64_t step) {
    const auto offsets = draw_offsets(graph, *op, rank, microbatch, step);
    const std::int64_t length = op->shape[3];
    auto* begins = host.reserve_of<std::int32_t>(2 * rows());
    auto* ends = begins + rows();
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const auto sample = static_cast<std::int32_t>(offsets[i] / length * length);
      for (std::int32_t row = offsets[i]; row < offsets[i + 1]; ++row) {
        begins[row] = offsets[i] - sample;
        ends[row] = offsets[i + 1] - sample;
      }
    }
  }
};

/// By the op's place in the step.
struct LayerState : OpState {
  LayerState(const ExecutionGraph& of, std::int32_t of_rank, Ledger& to)
      : graph(of), rank(of_rank), ledger(to) {}
  void replay(std::int64_t step) override {
    for (auto& [issue, b] : bounds) {
      b.draw(graph, rank, step);
    }
  }
  const ExecutionGraph& graph;
  const std::int32_t rank;
  Ledger& ledger;
  std::map<std::size_t, SequenceBounds> bounds;
};

/// The shape of a jagged op, its sequences drawn and on their way to the device.
kernels::JaggedShape jagged_shape(OpContext& c) {
  kernels::JaggedShape s;
  s.samples = c.op.shape[0];
  s.heads = c.op.shape[1];
  s.kv_heads = c.op.shape[2];
  s.rows = c.op.shape[3];
  s.head_dim = c.op.shape[5];
  s.causal = c.has(op_flags::kCausal);
  auto& state = static_cast<LayerState&>(*c.state);
  SequenceBounds& b =
      state.bounds
          .try_emplace(c.issue, &c.op, c.microbatch, Buffer(Buffer::Kind::kPinned, "sequences"),
                       Buffer(Buffer::Kind::kDevice, "sequences", &state.ledger))
          .first->second;
  b.draw(c.graph, c.rank, c.step);
  auto* on_device = b.device.reserve_of<std::int32_t>(2 * b.rows());
  check(cudaMemcpyAsync(on_device, b.host.data(), 2 * b.rows() * sizeof(std::int32_t),
                        cudaMemcpyHostToDevice, c.stream),
        "cudaMemcpyAsync of sequences");
  s.begins = on_device;
  s.ends = on_device + b.rows();
  return s;
}

/// Queries, keys or values (0, 1, 2) of rows that hold them side by side.
MatrixView part_of(const MatrixView& qkv, const kernels::JaggedShape& s, Index which) {
  const Index queries = s.heads * s.head_dim;
  const Index keys = s.kv_heads * s.head_dim;
  return which == 0 ? qkv.block(0, queries) : qkv.block(queries + (which - 1) * keys, keys);
}

void jagged_attention_forward(OpContext& c) {
  const kernels::JaggedShape s = jagged_shape(c);
  const MatrixView qkv = c.input(0);
  kernels::jagged_attention_forward(s, part_of(qkv, s, 0), part_of(qkv, s, 1), part_of(qkv, s, 2),
                                    c.output(0), c.floats(c.output(1)), c.stream);
}

void jagged_attention_backward(OpContext& c) {
  const kernels::JaggedShape s = jagged_shape(c);
  const MatrixView qkv = c.input(0);
  const MatrixView d_qkv = c.output(0);
  kernels::jagged_attention_backward(
      s,
      {part_of(qkv, s, 0), part_of(qkv, s, 1), part_of(qkv, s, 2), c.input(1), c.input(3),
       c.floats(c.input(2)), part_of(d_qkv, s, 0), part_of(d_qkv, s, 1), part_of(d_qkv, s, 2)},
      c.workspace(kernels::jagged_attention_backward_workspace(s)), c.stream);
}

std::unique_ptr<OpState> make_layer_state(const ExecutionGraph& graph, const Program&,
                                          std::int32_t rank, Ledger& ledger) {
  return std::make_unique<LayerState>(graph, rank, ledger);
}

}  // namespace

OpFamily layer_ops() { return {{STEPCAST_LAYER_OPS(STEPCAST_OP)}, make_layer_state}; }

}  // namespace stepcast::runtime::cuda
