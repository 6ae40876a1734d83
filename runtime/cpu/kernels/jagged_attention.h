#pragma once
#include <cstdint>
#include <span>

#include "runtime/cpu/kernels/attention.h"

namespace stepcast::runtime::kernels {

/// Attention of rows within sequences of different lengths that lie end to end, without padding:
/// columns and heads as in attention.h.
struct JaggedShape {
  std::span<const std::int32_t> offsets;  ///< where sequences begin, ascending, and the last end
  Index sample_rows = 0;                  ///< sequences do not cross its multiples
  Index heads = 1;
  Index kv_heads = 1;
  Index head_dim = 0;
  bool causal = true;

  /// Floats of scratch of either pass.
  [[nodiscard]] Index scratch_floats() const;
};

/// out = softmax(q k^T / sqrt(head_dim)) v within each sequence, blocks of keys at a time with a
/// running maximum and sum, so that no more than one block of scores exists. log_sum_exp [samples,
/// heads, sample_rows]. Source: Milakov, Gimelshein, arXiv 1805.02867 (running softmax); Dao et
/// al., arXiv 2205.14135.
void jagged_attention_forward(const JaggedShape& shape, ConstMatrixView q, ConstMatrixView k,
                              ConstMatrixView v, MatrixView out, float* log_sum_exp,
                              float* scratch);

/// Does as attention_backward, within each sequence.
void jagged_attention_backward(const JaggedShape& shape, const AttentionBackward& tensors,
                               float* scratch);

}  // namespace stepcast::runtime::kernels
