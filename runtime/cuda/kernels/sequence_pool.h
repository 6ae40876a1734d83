#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// out[b] (+)= factor of b * sum of x[offsets[b] .. offsets[b + 1]); an empty bag gives zeros. The
/// factor is 1 / size of the bag between `size_offsets` (null: `offsets`, the plain mean): parts of
/// one bag that come from several owners add up to its mean with `accumulate`. offsets [out.rows +
/// 1] are relative to x. Formats may differ.
void sequence_mean_forward(ConstMatrixView x, const std::int64_t* offsets,
                           const std::int64_t* size_offsets, bool accumulate, MatrixView out,
                           cudaStream_t stream);

/// dx[i] = d_out[b] * factor of b for each row i of bag b.
void sequence_mean_backward(ConstMatrixView d_out, const std::int64_t* offsets,
                            const std::int64_t* size_offsets, MatrixView dx, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
