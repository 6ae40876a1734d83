#pragma once
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// Pairwise dot products of the features of each sample. x [batch, features * dim]; feature 0 is
/// the dense vector.
struct DotInteraction {
  Index features = 0;
  Index dim = 0;
  [[nodiscard]] Index pairs() const { return features * (features - 1) / 2; }
  [[nodiscard]] Index output_width() const { return dim + pairs(); }
  [[nodiscard]] Index scratch_floats() const { return features * features; }
};

/// out [batch, dim + pairs] = dense vector, then x_i . x_j for i = 1 .. features - 1, j = 0 .. i -
/// 1 (row by row, no self-pairs). Source: Naumov et al., arXiv 1906.00091.
void dot_interaction_forward(const DotInteraction& shape, ConstMatrixView x, MatrixView out,
                             float* scratch);

/// dx_i = sum over j of d_pair(i, j) x_j, plus the dense vector's own gradient for i = 0.
void dot_interaction_backward(const DotInteraction& shape, ConstMatrixView d_out, ConstMatrixView x,
                              MatrixView dx, float* scratch);

/// Elementwise part of a low-rank cross layer of DCNv2: out = x0 * (u + bias) + x with u = U (V x)
/// from two products. out may be x. Source: Wang et al., arXiv 2008.13535, eq. 1 and 2.
void cross_forward(ConstMatrixView x0, ConstMatrixView u, const float* bias, ConstMatrixView x,
                   MatrixView out);

/// du = d_out * x0; d_bias += column sums of du; d_x0 += d_out * (u + bias); d_x = d_out (skipped
/// when it is d_out or has no data: the products of the backward then add V^T U^T du to it). du may
/// be u.
void cross_backward(ConstMatrixView d_out, ConstMatrixView x0, ConstMatrixView u, const float* bias,
                    MatrixView du, float* d_bias, MatrixView d_x0, MatrixView d_x);

}  // namespace stepcast::runtime::kernels
