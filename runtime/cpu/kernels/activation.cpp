#include "runtime/cpu/kernels/activation.h"

#include "core/error.h"
#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

constexpr float kGeluScale = 0.797884560802865F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

struct ValueAndSlope {
  float value;
  float slope;
};

struct Gelu {
  static STEPCAST_INLINE ValueAndSlope at(float x) {
    const float tanh = internal::hyperbolic_tangent(kGeluScale * (x + kGeluCubic * x * x * x));
    const float inner_slope = kGeluScale * (1.0F + 3.0F * kGeluCubic * x * x);
    return {0.5F * x * (1.0F + tanh),
            0.5F * (1.0F + tanh) + 0.5F * x * (1.0F - tanh * tanh) * inner_slope};
  }
};

struct Silu {
  static STEPCAST_INLINE ValueAndSlope at(float x) {
    const float s = internal::sigmoid(x);
    return {x * s, s * (1.0F + x * (1.0F - s))};
  }
};

struct Sigmoid {
  static STEPCAST_INLINE ValueAndSlope at(float x) {
    const float s = internal::sigmoid(x);
    return {s, s * (1.0F - s)};
  }
};

struct Tanh {
  static STEPCAST_INLINE ValueAndSlope at(float x) {
    const float t = internal::hyperbolic_tangent(x);
    return {t, 1.0F - t * t};
  }
};

struct SquaredRelu {
  static STEPCAST_INLINE ValueAndSlope at(float x) {
    const float r = x > 0 ? x : 0;
    return {r * r, 2.0F * r};
  }
};

struct Relu {
  static STEPCAST_INLINE ValueAndSlope at(float x) { return {x > 0 ? x : 0, x > 0 ? 1.0F : 0.0F}; }
};

template <class Function>
STEPCAST_INLINE void plain_forward(ConstMatrixView x, MatrixView y) {
  for (Index i = 0; i < x.rows; ++i) {
    const float* in = x.row(i);
    float* out = y.row(i);
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) {
      out[j] = Function::at(in[j]).value;
    }
  }
}

template <class Function>
STEPCAST_INLINE void plain_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  for (Index i = 0; i < x.rows; ++i) {
    const float* in = x.row(i);
    const float* gradient = dy.row(i);
    float* out = dx.row(i);
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) {
      out[j] = gradient[j] * Function::at(in[j]).slope;
    }
  }
}

template <class Function>
STEPCAST_INLINE void gated_forward(ConstMatrixView x, MatrixView y) {
  for (Index i = 0; i < y.rows; ++i) {
    const float* gate = x.row(i);
    const float* up = gate + y.columns;
    float* out = y.row(i);
#pragma omp simd
    for (Index j = 0; j < y.columns; ++j) {
      out[j] = Function::at(gate[j]).value * up[j];
    }
  }
}

template <class Function>
STEPCAST_INLINE void gated_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  for (Index i = 0; i < dy.rows; ++i) {
    const float* gate = x.row(i);
    const float* up = gate + dy.columns;
    const float* gradient = dy.row(i);
    float* d_gate = dx.row(i);
    float* d_up = d_gate + dy.columns;
#pragma omp simd
    for (Index j = 0; j < dy.columns; ++j) {
      const auto [value, slope] = Function::at(gate[j]);
      const float d_value = gradient[j] * up[j];
      d_up[j] = gradient[j] * value;
      d_gate[j] = d_value * slope;
    }
  }
}

STEPCAST_MULTIVERSION void bias_forward(ConstMatrixView x, const float* bias, bool relu,
                                        MatrixView y) {
  for (Index i = 0; i < x.rows; ++i) {
    const float* in = x.row(i);
    float* out = y.row(i);
    if (relu) {
#pragma omp simd
      for (Index j = 0; j < x.columns; ++j) {
        const float z = in[j] + bias[j];
        out[j] = z > 0 ? z : 0;
      }
    } else {
#pragma omp simd
      for (Index j = 0; j < x.columns; ++j) {
        out[j] = in[j] + bias[j];
      }
    }
  }
}

STEPCAST_MULTIVERSION void relu_backward(ConstMatrixView dy, ConstMatrixView y, MatrixView dx,
                                         float* d_bias) {
  for (Index i = 0; i < y.rows; ++i) {
    const float* gradient = dy.row(i);
    const float* value = y.row(i);
    float* out = dx.row(i);
    if (d_bias != nullptr) {
#pragma omp simd
      for (Index j = 0; j < y.columns; ++j) {
        const float d = value[j] > 0 ? gradient[j] : 0;
        out[j] = d;
        d_bias[j] += d;
      }
    } else {
#pragma omp simd
      for (Index j = 0; j < y.columns; ++j) {
        out[j] = value[j] > 0 ? gradient[j] : 0;
      }
    }
  }
}

STEPCAST_MULTIVERSION void relu_forward(ConstMatrixView x, MatrixView y) {
  plain_forward<Relu>(x, y);
}
STEPCAST_MULTIVERSION void gelu_forward(ConstMatrixView x, MatrixView y) {
  plain_forward<Gelu>(x, y);
}
STEPCAST_MULTIVERSION void squared_relu_forward(ConstMatrixView x, MatrixView y) {
  plain_forward<SquaredRelu>(x, y);
}
STEPCAST_MULTIVERSION void swiglu_forward(ConstMatrixView x, MatrixView y) {
  gated_forward<Silu>(x, y);
}
STEPCAST_MULTIVERSION void geglu_forward(ConstMatrixView x, MatrixView y) {
  gated_forward<Gelu>(x, y);
}

STEPCAST_MULTIVERSION void silu_forward(ConstMatrixView x, MatrixView y) {
  plain_forward<Silu>(x, y);
}
STEPCAST_MULTIVERSION void tanh_forward(ConstMatrixView x, MatrixView y) {
  plain_forward<Tanh>(x, y);
}
STEPCAST_MULTIVERSION void sigmoid_forward(ConstMatrixView x, MatrixView y) {
  plain_forward<Sigmoid>(x, y);
}
STEPCAST_MULTIVERSION void silu_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  plain_backward<Silu>(x, dy, dx);
}
STEPCAST_MULTIVERSION void tanh_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  plain_backward<Tanh>(x, dy, dx);
}
STEPCAST_MULTIVERSION void sigmoid_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  plain_backward<Sigmoid>(x, dy, dx);
}

STEPCAST_MULTIVERSION void plain_relu_backward(ConstMatrixView x, ConstMatrixView dy,
                                               MatrixView dx) {
  plain_backward<Relu>(x, dy, dx);
}
STEPCAST_MULTIVERSION void gelu_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  plain_backward<Gelu>(x, dy, dx);
}
STEPCAST_MULTIVERSION void squared_relu_backward(ConstMatrixView x, ConstMatrixView dy,
                                                 MatrixView dx) {
  plain_backward<SquaredRelu>(x, dy, dx);
}
STEPCAST_MULTIVERSION void swiglu_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  gated_backward<Silu>(x, dy, dx);
}
STEPCAST_MULTIVERSION void geglu_backward(ConstMatrixView x, ConstMatrixView dy, MatrixView dx) {
  gated_backward<Gelu>(x, dy, dx);
}

}  // namespace

void bias_activation_forward(ConstMatrixView x, const float* bias, Activation activation,
                             MatrixView y) {
  STEPCAST_CHECK(activation == Activation::kNone || activation == Activation::kRelu,
                 "bias and activation: none or relu, not {}", name_of(activation));
  if (bias != nullptr) {
    bias_forward(x, bias, activation == Activation::kRelu, y);
  } else {
    activation_forward(activation, x, y);
  }
}

void bias_activation_backward(ConstMatrixView dy, ConstMatrixView y, Activation activation,
                              MatrixView dx, float* d_bias) {
  STEPCAST_CHECK(activation == Activation::kNone || activation == Activation::kRelu,
                 "bias and activation: none or relu, not {}", name_of(activation));
  if (activation == Activation::kRelu) {
    relu_backward(dy, y, dx, d_bias);
    return;
  }
  if (dx.data != dy.data) {
    copy_block(dy, dx);
  }
  if (d_bias != nullptr) {
    add_column_sums(dy, d_bias);
  }
}

void activation_forward(Activation activation, ConstMatrixView x, MatrixView y) {
  switch (activation) {
    case Activation::kNone:
      return copy_block(x, y);
    case Activation::kRelu:
      return relu_forward(x, y);
    case Activation::kGelu:
      return gelu_forward(x, y);
    case Activation::kSquaredRelu:
      return squared_relu_forward(x, y);
    case Activation::kSwiGlu:
      return swiglu_forward(x, y);
    case Activation::kGeGlu:
      return geglu_forward(x, y);
    case Activation::kSilu:
      return silu_forward(x, y);
    case Activation::kTanh:
      return tanh_forward(x, y);
    case Activation::kSigmoid:
      return sigmoid_forward(x, y);
  }
}

void activation_backward(Activation activation, ConstMatrixView x, ConstMatrixView dy,
                         MatrixView dx) {
  switch (activation) {
    case Activation::kNone:
      return copy_block(dy, dx);
    case Activation::kRelu:
      return plain_relu_backward(x, dy, dx);
    case Activation::kGelu:
      return gelu_backward(x, dy, dx);
    case Activation::kSquaredRelu:
      return squared_relu_backward(x, dy, dx);
    case Activation::kSwiGlu:
      return swiglu_backward(x, dy, dx);
    case Activation::kGeGlu:
      return geglu_backward(x, dy, dx);
    case Activation::kSilu:
      return silu_backward(x, dy, dx);
    case Activation::kTanh:
      return tanh_backward(x, dy, dx);
    case Activation::kSigmoid:
      return sigmoid_backward(x, dy, dx);
  }
}

}  // namespace stepcast::runtime::kernels
