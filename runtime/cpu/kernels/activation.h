#pragma once
#include "core/graph/op_enums.h"
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// y = act(x + bias), y may be x. `bias` [columns] may be null. Valid: kNone, kRelu.
void bias_activation_forward(ConstMatrixView x, const float* bias, Activation activation,
                             MatrixView y);

/// dx = dy * act'(.) from the forward's output y (kRelu: y > 0; kNone: y is not read), d_bias +=
/// column sums of dx. dx may be dy. `d_bias` may be null.
void bias_activation_backward(ConstMatrixView dy, ConstMatrixView y, Activation activation,
                              MatrixView dx, float* d_bias);

/// y = act(x) of the pre-activation x; gated kinds read x [rows, 2 f] = gate | up and write y
/// [rows, f] = act(gate) * up. kGelu, kGeGlu use the tanh form 0.5 x (1 + tanh(sqrt(2 / pi) (x +
/// 0.044715 x^3))); kSwiGlu x * sigmoid(x); kSquaredRelu max(x, 0)^2. Source: Hendrycks, Gimpel,
/// arXiv 1606.08415; Shazeer, arXiv 2002.05202; So et al., arXiv 2109.08668.
void activation_forward(Activation activation, ConstMatrixView x, MatrixView y);

/// dx (shape of x) from the same pre-activation x and dy (shape of y). dx may be x.
void activation_backward(Activation activation, ConstMatrixView x, ConstMatrixView dy,
                         MatrixView dx);

}  // namespace stepcast::runtime::kernels
