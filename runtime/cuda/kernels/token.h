#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// The token of each activation row: row i is position i mod sequence of sample i / sequence, its
/// token is data[sample * pitch + position]. Inputs and targets of one buffer of `sequence + 1`
/// tokens a sample differ by one element.
struct TokenRows {
  const std::int32_t* data = nullptr;
  Index sequence = 1;
  Index pitch = 1;
};

/// out[i] = weights[token - first], zeros for tokens of other shards of the vocabulary. The two may
/// differ in format.
void token_embedding_forward(ConstMatrixView weights, std::int64_t first, TokenRows tokens,
                             MatrixView out, cudaStream_t stream);

std::size_t token_embedding_backward_workspace(Index tokens, Index local_rows, Index hidden);

/// d_weights[token - first] += sum of d_out over the rows with that token, in their order. Formats
/// may differ.
void token_embedding_backward(ConstMatrixView d_out, std::int64_t first, TokenRows tokens,
                              MatrixView d_weights, Workspace workspace, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
