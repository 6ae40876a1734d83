#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// Rotates, in place, the pairs (x[i], x[i + head_dim / 2]) of each head; `direction` 1 is the
/// forward, -1 the backward. x [tokens, heads * head_dim]; row t holds position t mod length. table
/// [length, head_dim] (fp32, device): cosines, then sines, the rows of the CPU's RotaryTable.
void rotate(const float* table, Index length, Index head_dim, int direction, MatrixView x,
            cudaStream_t stream);

/// Learned positions: x[t] += positions[t mod positions.rows].
void add_positions(ConstMatrixView positions, MatrixView x, cudaStream_t stream);
/// d_positions[p] += sum over t = p mod d_positions.rows of dx[t], in the order of t.
void add_positions_backward(ConstMatrixView dx, MatrixView d_positions, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
