#include "runtime/cuda/kernels/attention.h"
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

}  // namespace

OpFamily layer_ops() {
  return {{{OpKind::kTranspose, transpose},
           {OpKind::kMultiplyForward, multiply_forward},
           {OpKind::kMultiplyBackward, multiply_backward},
           {OpKind::kSoftmaxForward, softmax_forward},
           {OpKind::kSoftmaxBackward, softmax_backward},
           {OpKind::kMeanRowsForward, mean_rows_forward},
           {OpKind::kMeanRowsBackward, mean_rows_backward},
           {OpKind::kModulateForward, modulate_forward},
           {OpKind::kModulateBackward, modulate_backward},
           {OpKind::kGateForward, gate_forward},
           {OpKind::kGateBackward, gate_backward}}};
}

}  // namespace stepcast::runtime::cuda
