#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

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
