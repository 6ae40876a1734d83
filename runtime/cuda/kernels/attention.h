#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// Scaled dot-product attention, layout and mask of runtime/cpu/kernels/attention.h: rows are
/// tokens in [batch, sequence] order, columns [heads, head_dim], each matrix may be a column block
/// of a wider one. Causal: query i sees keys 0 .. i + kv_length - query_length.
struct AttentionShape {
  Index batch = 1;
  Index heads = 1;
  Index kv_heads = 1;
  Index query_length = 0;
  Index kv_length = 0;
  Index head_dim = 0;
  bool causal = true;
  Index window = 0;  ///< causal only: keys a query sees at most, the last ones; 0: all
  float scale = 0;   ///< of the scores; 0 means 1 / sqrt(head_dim)
  /// On the device, or null: rows of a sample are sequences end to end, that of a row reaches from
  /// begins[row] to before ends[row], [batch * query_length], counted from the sample's first row.
  /// Each row attends within its own. As many keys as queries, no window.
  const std::int32_t* begins = nullptr;
  const std::int32_t* ends = nullptr;
  bool operator==(const AttentionShape&) const = default;
};

/// Which of our kernels computes a shape: tensor cores (bf16, fp16; head_dim 64 or 128), or plain
/// fp32 arithmetic (any format, head_dim up to 256). An empty name: none does.
const char* attention_kernel(const AttentionShape& shape, Format format);

/// out = softmax(scale q k^T) v per head, without ever storing the scores; log_sum_exp [batch,
/// heads, query_length] (fp32) receives the logarithm of each softmax denominator. Source: Dao et
/// al., arXiv 2205.14135; Dao, arXiv 2307.08691.
void attention_forward(const AttentionShape& shape, ConstMatrixView q, ConstMatrixView k,
                       ConstMatrixView v, MatrixView out, float* log_sum_exp, cudaStream_t stream);

/// What the backward reads and writes. Gradients are overwritten.
struct AttentionBackward {
  ConstMatrixView q, k, v, out, d_out;
  const float* log_sum_exp = nullptr;
  MatrixView d_q, d_k, d_v;
};
std::size_t attention_backward_workspace(const AttentionShape& shape);

/// P = exp(scale q k^T - log_sum_exp); dV = P^T dO; dS = scale P * (dO v^T - rowsum(dO * O)); dQ =
/// dS k; dK = dS^T q. One kernel walks the queries of each key block (dK, dV), one the keys of each
/// query block (dQ): no atomics.
void attention_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                        Workspace workspace, cudaStream_t stream);

/// Row-wise softmax of `scale * x` into `out` (may be x), the middle of unfused attention. Row i
/// belongs to query i mod query_length and keeps its first min(columns, i mod query_length +
/// diagonal + 1) columns, or the last `window` of them (0: all), the others become 0; diagonal =
/// columns leaves every column visible. Formats may differ.
void softmax_rows(ConstMatrixView x, float scale, Index query_length, Index diagonal, Index window,
                  MatrixView out, cudaStream_t stream);

/// dx = scale * p * (dp - rowsum(dp * p)); dx may be dp. Formats may differ.
void softmax_rows_backward(ConstMatrixView p, ConstMatrixView dp, float scale, MatrixView dx,
                           cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
