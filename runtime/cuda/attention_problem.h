#pragma once
#include "runtime/cuda/kernels/attention.h"

namespace stepcast::runtime::cuda {

/// The operands of fused attention: `out` and `log_sum_exp` [batch, heads, query_length] are
/// written by the forward and read by the backward, which alone has the others. Layouts are those
/// of kernels::attention_forward and attention_backward.
struct AttentionTensors {
  kernels::ConstMatrixView q, k, v;
  kernels::MatrixView out;
  float* log_sum_exp = nullptr;
  kernels::ConstMatrixView d_out;
  kernels::MatrixView d_q, d_k, d_v;
};

/// What a library must know to plan attention: everything of it but the addresses. Strides are
/// elements from one token to the next.
struct AttentionProblem {
  kernels::AttentionShape shape;
  Format format = Format::kBf16;
  bool backward = false;
  kernels::Index q = 0, k = 0, v = 0, out = 0, d_out = 0, d_q = 0, d_k = 0, d_v = 0;
  bool aligned = true;  ///< every operand begins at a multiple of 16 bytes
  bool operator==(const AttentionProblem&) const = default;
};
AttentionProblem attention_problem(const kernels::AttentionShape& shape, const AttentionTensors& t,
                                   bool backward);

/// Factor of the scores: the shape's own, or 1 / sqrt(head_dim).
float attention_scale(const kernels::AttentionShape& shape);

}  // namespace stepcast::runtime::cuda
