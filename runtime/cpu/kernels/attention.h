#pragma once
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// Scaled dot-product attention. Rows of the matrices are tokens in [batch, sequence] order,
/// columns are [heads, head_dim]; each matrix may be a column block of a wider one (q, k and v of
/// one fused product). Query head h reads key/value head h / (heads / kv_heads). Causal: query i
/// sees keys 0 .. i + kv_length - query_length.
struct AttentionShape {
  Index batch = 1;
  Index heads = 1;
  Index kv_heads = 1;
  Index query_length = 0;
  Index kv_length = 0;
  Index head_dim = 0;
  bool causal = true;
  Index query_block = 128;  ///< queries whose scores are held at a time; query_length holds a
                            ///< head's whole score matrix
  Index window = 0;         ///< causal only: keys a query sees at most, the last ones; 0: all

  /// Floats of scratch that the forward (backward: twice as much) needs.
  [[nodiscard]] Index scratch_floats() const;
};

/// out = softmax(scale q k^T) v per head, blocks of queries at a time; keys no query of a block
/// sees are skipped. log_sum_exp [batch, heads, query_length] receives the logarithm of each
/// softmax denominator, all the backward needs to recompute the scores. q, out [batch *
/// query_length, heads * head_dim]; k, v [batch * kv_length, kv_heads * head_dim]. Source: Dao et
/// al., arXiv 2205.14135 (recomputation from the log-sum-exp); Ainslie et al., arXiv 2305.13245
/// (grouped heads).
void attention_forward(const AttentionShape& shape, ConstMatrixView q, ConstMatrixView k,
                       ConstMatrixView v, MatrixView out, float* log_sum_exp, float* scratch);

/// Tensors that the backward reads and writes. Gradients are overwritten.
struct AttentionBackward {
  ConstMatrixView q;
  ConstMatrixView k;
  ConstMatrixView v;
  ConstMatrixView out;
  ConstMatrixView d_out;
  const float* log_sum_exp = nullptr;
  MatrixView d_q;
  MatrixView d_k;
  MatrixView d_v;
};

/// P = exp(scale q k^T - log_sum_exp); dV += P^T dO; dS = scale P * (dO v^T - rowsum(dO * O)); dQ =
/// dS k; dK += dS^T q. scratch: 2 * shape.scratch_floats().
void attention_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                        float* scratch);

/// Row-wise softmax in place; row i keeps its first `visible(i)` = min(columns, i + diagonal + 1)
/// columns, or the last `window` of them, the others become 0. diagonal = columns leaves every
/// column visible. log_sum_exp [rows] may be null.
void softmax_rows(MatrixView x, Index diagonal, float* log_sum_exp, Index window = 0);

}  // namespace stepcast::runtime::kernels
