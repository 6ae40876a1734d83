#pragma once
#include "runtime/cpu/kernels/matrix_view.h"
#include "runtime/rotary_table.h"

namespace stepcast::runtime::kernels {

using runtime::RotaryTable;

/// Rotates, in place, the pairs (x[i], x[i + head_dim / 2]) of each head by the angle of its
/// token's position. x [tokens, heads * head_dim], heads inferred; row t holds position t mod
/// table.length() (rows are [batch, sequence] with sequence = length). Source: Su et al., arXiv
/// 2104.09864, in the half-split pairing of Llama's published checkpoints.
void rotary_forward(const RotaryTable& table, MatrixView x);

/// The inverse rotation, in place on the gradient.
void rotary_backward(const RotaryTable& table, MatrixView dx);

/// Learned positions: x[t] += positions[t mod positions.rows].
void add_positions(ConstMatrixView positions, MatrixView x);
/// d_positions[t mod rows] += dx[t].
void add_positions_backward(ConstMatrixView dx, MatrixView d_positions);

}  // namespace stepcast::runtime::kernels
