#pragma once
#include "runtime/cuda/kernels/attention.h"
#include "runtime/cuda/kernels/internal/attention_tile.h"
#include "runtime/cuda/kernels/internal/element.cuh"

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

/// What the kernels of both implementations are given.
template <class M>
struct AttentionOperands {
  Operand q, k, v, out, d_out, d_q, d_k, d_v;
  float* log_sum_exp;
  const float* delta;
  M mask;
  Index heads;
  Index group;  ///< query heads that share a key head
  int head_dim;
  float scale;
};

template <class M>
AttentionOperands<M> operands_of(const AttentionShape& shape, const M& mask) {
  AttentionOperands<M> o{};
  o.mask = mask;
  o.heads = shape.heads;
  o.group = shape.heads / shape.kv_heads;
  o.head_dim = static_cast<int>(shape.head_dim);
  o.scale = shape.scale;
  return o;
}

template <class M>
AttentionOperands<M> forward_operands(const AttentionShape& shape, const M& mask,
                                      const ConstMatrixView& q, const ConstMatrixView& k,
                                      const ConstMatrixView& v, const MatrixView& out,
                                      float* log_sum_exp) {
  auto o = operands_of(shape, mask);
  o.q = operand(q);
  o.k = operand(k);
  o.v = operand(v);
  o.out = operand(out);
  o.log_sum_exp = log_sum_exp;
  return o;
}

template <class M>
AttentionOperands<M> backward_operands(const AttentionShape& shape, const M& mask,
                                       const AttentionBackward& tensors, const float* delta) {
  auto o = operands_of(shape, mask);
  o.q = operand(tensors.q);
  o.k = operand(tensors.k);
  o.v = operand(tensors.v);
  o.d_out = operand(tensors.d_out);
  o.d_q = operand(tensors.d_q);
  o.d_k = operand(tensors.d_k);
  o.d_v = operand(tensors.d_v);
  o.log_sum_exp = const_cast<float*>(tensors.log_sum_exp);  // the backward only reads it
  o.delta = delta;
  return o;
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
