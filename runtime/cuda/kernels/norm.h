#pragma once
#include "core/graph/op_enums.h"
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// Layer norm and RMS norm of each row as in runtime/cpu/kernels/norm.h: statistics [rows, 2]
/// (fp32) receives (mean, r). `bias` may be null. y may be x. Valid: rows of up to 16384 columns
/// (8192 where the layout does not allow reading in packs of 16 bytes).
void norm_forward(Norm norm, ConstMatrixView x, ConstVector weight, ConstVector bias, float epsilon,
                  MatrixView y, float* statistics, cudaStream_t stream);

std::size_t norm_backward_workspace(Index rows, Index columns);

/// dx = r (g - [mean of g] - n * mean of (g n)) (+ residual), d_weight += column sums of dy * n,
/// d_bias += column sums of dy. `residual` (no data: none) has the shape of dx; `d_bias` may be
/// null. dx may be dy or residual.
void norm_backward(Norm norm, ConstMatrixView dy, ConstMatrixView x, ConstVector weight,
                   const float* statistics, ConstMatrixView residual, MatrixView dx,
                   Vector d_weight, Vector d_bias, Workspace workspace, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
