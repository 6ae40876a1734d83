#pragma once
#include "core/graph/op_enums.h"
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// Normalises each row of x [rows, width] and saves what the backward needs.
///   kLayerNorm  y = (x - mean) * r * weight + bias,  r = 1 / sqrt(variance + epsilon)
///   kRmsNorm    y = x * r * weight,                  r = 1 / sqrt(mean of x^2 + epsilon)
/// statistics [rows, 2] receives (mean, r) of each row; the mean is 0 for kRmsNorm. `bias` may be
/// null. y may be x only if x is not needed by the backward. Source: Ba et al., arXiv 1607.06450;
/// Zhang, Sennrich, arXiv 1910.07467.
void norm_forward(Norm norm, ConstMatrixView x, const float* weight, const float* bias,
                  float epsilon, MatrixView y, float* statistics);

/// With g = dy * weight and n = (x - mean) * r:  dx = r (g - [mean of g] - n * mean of (g n)), the
/// bracket only for kLayerNorm; d_weight += column sums of dy * n, d_bias += column sums of dy.
/// `d_bias` may be null. dx may be dy.
void norm_backward(Norm norm, ConstMatrixView dy, ConstMatrixView x, const float* weight,
                   const float* statistics, MatrixView dx, float* d_weight, float* d_bias);

}  // namespace stepcast::runtime::kernels
