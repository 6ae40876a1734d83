#pragma once
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// Pairwise dot products of the features of each sample. x [batch, features * dim]; feature 0 is
/// the dense vector. Valid: features * (dim + 1) + pairs fp32 numbers fit 160 KiB of shared memory.
struct DotInteraction {
  Index features = 0;
  Index dim = 0;
  [[nodiscard]] constexpr Index pairs() const { return features * (features - 1) / 2; }
  [[nodiscard]] constexpr Index output_width() const { return dim + pairs(); }
};

/// out [batch, dim + pairs] = dense vector, then x_i . x_j for i = 1 .. features - 1, j = 0 .. i
/// - 1. Formats may differ.
void dot_interaction_forward(const DotInteraction& shape, ConstMatrixView x, MatrixView out,
                             cudaStream_t stream);

/// dx_i = sum over j of d_pair(i, j) x_j, plus the dense vector's own gradient for i = 0. dx may be
/// x.
void dot_interaction_backward(const DotInteraction& shape, ConstMatrixView d_out, ConstMatrixView x,
                              MatrixView dx, cudaStream_t stream);

/// out = x0 * (u + bias) + x: elementwise part of a low-rank cross layer. out may be x.
void cross_forward(ConstMatrixView x0, ConstMatrixView u, ConstVector bias, ConstMatrixView x,
                   MatrixView out, cudaStream_t stream);

std::size_t cross_backward_workspace(Index rows, Index columns);

/// du = d_out * x0; d_bias += column sums of du; d_x0 (+)= d_out * (u + bias), added to if
/// `accumulate`. du may be u.
void cross_backward(ConstMatrixView d_out, ConstMatrixView x0, ConstMatrixView u, ConstVector bias,
                    MatrixView du, Vector d_bias, MatrixView d_x0, bool accumulate,
                    Workspace workspace, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
