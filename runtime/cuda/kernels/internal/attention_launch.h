#pragma once
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/internal/attention_tile.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// Calls launch(mask): which keys each row of a sample sees.
template <class Launch>
void with_mask(const AttentionShape& s, Launch launch) {
  if (s.begins != nullptr) {
    launch(SequenceMask{s.query_length, s.kv_length, s.causal, s.begins, s.ends});
  } else {
    launch(Mask{s.query_length, s.kv_length, s.causal, s.window});
  }
}

/// The two implementations behind attention.h. `delta` [batch, heads, query_length]: rowsum(dO *
/// O).
void flash_forward(const AttentionShape& shape, const ConstMatrixView& q, const ConstMatrixView& k,
                   const ConstMatrixView& v, const MatrixView& out, float* log_sum_exp,
                   cudaStream_t stream);
void flash_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                    const float* delta, cudaStream_t stream);

void plain_forward(const AttentionShape& shape, const ConstMatrixView& q, const ConstMatrixView& k,
                   const ConstMatrixView& v, const MatrixView& out, float* log_sum_exp,
                   cudaStream_t stream);
void plain_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                    const float* delta, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels::internal
