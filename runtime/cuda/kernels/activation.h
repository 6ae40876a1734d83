#pragma once
#include "core/graph/op_enums.h"
#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// y = act(x + bias) as runtime/cpu/kernels/activation.h defines it: kNone, kRelu, kGelu (tanh
/// form), kSquaredRelu; gated kinds (kSwiGlu, kGeGlu) read x [rows, 2 f] = gate | up (bias [2 f])
/// and write y [rows, f]. `bias` may be null. y may be x for the plain kinds.
void activation_forward(Activation activation, ConstMatrixView x, ConstVector bias, MatrixView y,
                        cudaStream_t stream);

/// Workspace of the two backward functions; `columns` of dx. 0 without a bias gradient.
std::size_t activation_backward_workspace(Index rows, Index columns);

/// dx = gradient at the same pre-activation x + bias from dy (shape of y); d_bias += column sums of
/// dx. dx may be x, or dy for the plain kinds. `bias` and `d_bias` may be null.
void activation_backward(Activation activation, ConstMatrixView x, ConstVector bias,
                         ConstMatrixView dy, MatrixView dx, Vector d_bias, Workspace workspace,
                         cudaStream_t stream);

/// dx = dy * act'(.) from the forward's output y (kRelu: y > 0; kNone: y is not read); d_bias +=
/// column sums of dx. dx may be dy. `d_bias` may be null.
void bias_activation_backward(Activation activation, ConstMatrixView dy, ConstMatrixView y,
                              MatrixView dx, Vector d_bias, Workspace workspace,
                              cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
