#pragma once
#include <cstdint>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// Mean of consecutive rows: out[b] = mean of x[offsets[b] .. offsets[b + 1]); an empty bag gives
/// zeros. offsets [out.rows + 1], relative to x. x may be a column block.
void sequence_mean_forward(ConstMatrixView x, const std::int64_t* offsets, MatrixView out);

/// dx[i] = d_out[b] / size of b for each row i of bag b.
void sequence_mean_backward(ConstMatrixView d_out, const std::int64_t* offsets, MatrixView dx);

}  // namespace stepcast::runtime::kernels
