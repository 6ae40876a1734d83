#include "runtime/cpu/kernels/token.h"

#include <algorithm>

#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

constexpr Index kPrefetchTokens = 4;

STEPCAST_INLINE bool is_here(std::int64_t local, Index rows) { return local >= 0 && local < rows; }

}  // namespace

STEPCAST_MULTIVERSION void token_embedding_forward(ConstMatrixView weights, std::int64_t first,
                                                   const std::int32_t* tokens, MatrixView out) {
  for (Index i = 0; i < out.rows; ++i) {
    if (i + kPrefetchTokens < out.rows &&
        is_here(tokens[i + kPrefetchTokens] - first, weights.rows)) {
      internal::prefetch_row(weights.row(tokens[i + kPrefetchTokens] - first), weights.columns);
    }
    float* to = out.row(i);
    const std::int64_t local = tokens[i] - first;
    if (is_here(local, weights.rows)) {
      const float* row = weights.row(local);
#pragma omp simd
      for (Index j = 0; j < out.columns; ++j) {
        to[j] = row[j];
      }
    } else {
      std::fill_n(to, out.columns, 0.0F);
    }
  }
}

STEPCAST_MULTIVERSION void token_embedding_backward(ConstMatrixView d_out, std::int64_t first,
                                                    const std::int32_t* tokens,
                                                    MatrixView d_weights) {
  for (Index i = 0; i < d_out.rows; ++i) {
    const std::int64_t local = tokens[i] - first;
    if (!is_here(local, d_weights.rows)) {
      continue;
    }
    const float* gradient = d_out.row(i);
    float* row = d_weights.row(local);
#pragma omp simd
    for (Index j = 0; j < d_out.columns; ++j) {
      row[j] += gradient[j];
    }
  }
}

}  // namespace stepcast::runtime::kernels
