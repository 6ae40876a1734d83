#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// Attention of rows within sequences of different lengths that lie end to end, without padding:
/// rows [samples, rows], columns [heads, head_dim], head_dim up to 256, any format; each matrix may
/// be a column block of a wider one. As runtime/cpu/kernels/jagged_attention.h.
struct JaggedShape {
  Index samples = 1;
  Index heads = 1;
  Index kv_heads = 1;
  Index rows = 0;  ///< of a sample; sequences do not cross its end
  Index head_dim = 0;
  bool causal = true;
  /// On the device: a row's sequence reaches from begins[row] to before ends[row], [samples *
  /// rows], counted from the sample's first row. Both ascend from row to row.
  const std::int32_t* begins = nullptr;
  const std::int32_t* ends = nullptr;
};

/// out = softmax(q k^T / sqrt(head_dim)) v within each sequence, without ever storing the scores;
/// log_sum_exp [samples, heads, rows] (fp32) receives the logarithm of each softmax denominator.
/// Source: Dao et al., arXiv 2205.14135.
void jagged_attention_forward(const JaggedShape& shape, ConstMatrixView q, ConstMatrixView k,
                              ConstMatrixView v, MatrixView out, float* log_sum_exp,
                              cudaStream_t stream);

/// The backward reads the first six and overwrites the gradients.
struct JaggedBackward {
  ConstMatrixView q{}, k{}, v{}, out{}, d_out{};
  const float* log_sum_exp = nullptr;
  MatrixView d_q{}, d_k{}, d_v{};
};
std::size_t jagged_attention_backward_workspace(const JaggedShape& shape);

/// P = exp(scale q k^T - log_sum_exp); dV = P^T dO; dS = scale P * (dO v^T - rowsum(dO * O)); dQ =
/// dS k; dK = dS^T q. One kernel walks the queries of each key block (dK, dV), one the keys of each
/// query block (dQ): no atomics.
void jagged_attention_backward(const JaggedShape& shape, const JaggedBackward& tensors,
                               Workspace workspace, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
