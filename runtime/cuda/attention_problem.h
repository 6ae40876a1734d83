#pragma once
#include "core/error.h"
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda {

/// Scaled dot-product attention, layout and mask of runtime/cpu/kernels/attention.h: rows are
/// tokens in [batch, sequence] order, columns [heads, head_dim], each matrix may be a column block
/// of a wider one. Causal: query i sees keys 0 .. i + kv_length - query_length.
struct AttentionShape {
  kernels::Index batch = 1;
  kernels::Index heads = 1;
  kernels::Index kv_heads = 1;
  kernels::Index query_length = 0;
  kernels::Index kv_length = 0;
  kernels::Index head_dim = 0;
  bool causal = true;
  kernels::Index window = 0;  ///< causal only: keys a query sees at most, the last ones; 0: all
  bool operator==(const AttentionShape&) const = default;
  [[nodiscard]] float scale() const;  ///< of the scores: 1 / sqrt(head_dim)
};

/// The operands of fused attention: `out` and `log_sum_exp` [batch, heads, query_length] are
/// written by the forward and read by the backward, which alone has the others.
struct AttentionTensors {
  kernels::ConstMatrixView q, k, v;
  kernels::MatrixView out;
  float* log_sum_exp = nullptr;
  kernels::ConstMatrixView d_out;
  kernels::MatrixView d_q, d_k, d_v;
};

/// Facts that a library must know to plan attention: everything of it but the addresses. Strides
/// are elements from one token to the next.
struct AttentionProblem {
  AttentionShape shape;
  Format format = Format::kBf16;
  bool backward = false;
  kernels::Index q = 0, k = 0, v = 0, out = 0, d_out = 0, d_q = 0, d_k = 0, d_v = 0;
  bool aligned = true;  ///< every operand begins at a multiple of 16 bytes
  bool operator==(const AttentionProblem&) const = default;
};
AttentionProblem attention_problem(const AttentionShape& shape, const AttentionTensors& t,
                                   bool backward);

/// The error of fused attention where cuDNN is `missing`, with the remedies.
EnvironmentError without_cudnn(const std::string& missing);

}  // namespace stepcast::runtime::cuda
