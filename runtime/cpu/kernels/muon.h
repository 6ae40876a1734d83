#pragma once
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// Momentum, and Nesterov's look ahead of it: m = 0.95 m + 0.05 g;  g = 0.95 m + 0.05 g.
void muon_momentum(float* gradient, float* momentum, Index n);

/// Brings the singular values of `x` near 1, in place, times 0.2 sqrt(max(rows, columns)): about as
/// long a step as Adam's. Newton-Schulz on X = x / ||x||, the smaller side of squares:
///   A = X X^T;  B = b A + c A A;  X = a X + B X      (a, b, c) = (3.4445, -4.7750, 2.0315)
/// `iterates` has room for twice the matrix, `squares` for two squares of its smaller side.
/// Source: Jordan et al., "Muon", 2024; Liu et al., arXiv 2502.16982, section 2.2.
void orthogonalize(const MatrixView& x, Index iterations, float* iterates, float* squares);

}  // namespace stepcast::runtime::kernels
