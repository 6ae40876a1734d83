#include "runtime/cuda/kernels/activation.h"

#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr float kGeluScale = 0.797884560802865F;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715F;

struct ValueAndSlope {
  float value;
  float slope;
};

__device__ inline ValueAndSlope gelu(float x) {
  const float t = tanhf(kGeluScale * (x + kGeluCubic * x * x * x));
  const float inner_slope = kGeluScale * (1.0F + 3.0F * kGeluCubic * x * x);
  return {0.5F * x * (1.0F + t), 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner_slope};
}

__device__ inline ValueAndSlope silu(float x) {
  const float s = 1.0F / (1.0F + expf(-x));
  return {x * s, s * (1.0F + x * (1.0F - s))};
}

/// The function that an activation applies (to the gate, where there is one). All threads take the
/// same branch.
__device__ inline ValueAndSlope evaluate(Activation activation, float x) {
  switch (activation) {
    case Activation::kRelu:
      return {x > 0 ? x : 0.0F, x > 0 ? 1.0F : 0.0F};
    case Activation::kGelu:
    case Activation::kGeGlu:
      return gelu(x);
    case Activation::kSquaredRelu:
      return {x > 0 ? x * x : 0.0F, x > 0 ? 2.0F * x : 0.0F};
    case Activation::kSwiGlu:
    case Activation::kSilu:
      return silu(x);
    case Activation::kTanh: {
      const float t = tanhf(x);
      return {t, 1.0F - t * t};
    }
    case Activation::kSigmoid: {
      const float s = 1.0F / (1.0F + expf(-x));
      return {s, s * (1.0F - s)};
    }
    case Activation::kNone:
      break;
  }
  return {x, 1.0F};
}

bool gated(Activation activation) {
  return activation == Activation::kSwiGlu || activation == Activation::kGeGlu;
}

__device__ inline float biased(float x, const ConstVector& bias, Index column) {
  return bias.data == nullptr ? x : x + internal::load_one(bias.data, bias.format, column);
}

struct PlainForward {
  Activation activation;
  ConstVector bias;
  template <int N>
  __device__ void operator()(Index, Index column, float (&x)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = evaluate(activation, biased(x[0][i], bias, column + i)).value;
    }
  }
};

/// Inputs gate, up.
struct GatedForward {
  Activation activation;
  ConstVector bias;
  Index width;
  template <int N>
  __device__ void operator()(Index, Index column, float (&x)[2][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      const float gate = biased(x[0][i], bias, column + i);
      y[0][i] =
          evaluate(activation, gate).value * biased(x[1][i], bias, width + column + i);
    }
  }
};

/// Inputs x, dy. The sum of a column is that of dx.
struct PlainBackward {
  Activation activation;
  ConstVector bias;
  template <int N>
  __device__ void operator()(Index, Index column, float (&x)[2][N], float (&y)[1][N],
                             float (&s)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      s[0][i] = y[0][i] =
          x[1][i] * evaluate(activation, biased(x[0][i], bias, column + i)).slope;
    }
  }
};

/// Inputs gate, up, dy; outputs and sums d_gate, d_up.
struct GatedBackward {
  Activation activation;
  ConstVector bias;
  Index width;
  template <int N, int Sums>
  __device__ void operator()(Index, Index column, float (&x)[3][N], float (&y)[2][N],
                             float (&s)[Sums][N]) const {
    for (int i = 0; i < N; ++i) {
      const auto [value, slope] = evaluate(activation, biased(x[0][i], bias, column + i));
      y[0][i] = x[2][i] * biased(x[1][i], bias, width + column + i) * slope;
      y[1][i] = x[2][i] * value;
      if constexpr (Sums == 2) {
        s[0][i] = y[0][i];
        s[1][i] = y[1][i];
      }
    }
  }
};

/// Inputs dy, y: relu from its output.
struct ReluBackward {
  template <int N>
  __device__ void operator()(Index, Index, float (&x)[2][N], float (&y)[1][N],
                             float (&s)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      s[0][i] = y[0][i] = x[1][i] > 0 ? x[0][i] : 0.0F;
    }
  }
};

template <std::size_t Inputs, std::size_t Outputs, class F>
void map_with_bias(const std::array<ConstMatrixView, Inputs>& in,
                   const std::array<MatrixView, Outputs>& out, F f, const Vector& d_bias,
                   internal::MapOptions options, Workspace workspace, cudaStream_t stream) {
  if (d_bias.data == nullptr) {
    internal::map(in, out, f, options, stream);
    return;
  }
  internal::SumTargets targets{{d_bias, {}}};
  if (Outputs == 2) {
    const auto offset = static_cast<Index>(element_bytes(d_bias.format)) * out[0].columns;
    targets.at[1] = {static_cast<char*>(d_bias.data) + offset, d_bias.format};
  }
  internal::map<static_cast<int>(Outputs)>(in, out, f, options, stream, workspace, targets);
}

}  // namespace

void activation_forward(Activation activation, ConstMatrixView x, ConstVector bias, MatrixView y,
                        cudaStream_t stream) {
  const internal::MapOptions options{"activation_forward", bias.data == nullptr};
  if (gated(activation)) {
    internal::require(x.columns == 2 * y.columns, "a gated activation halves the width");
    internal::map(std::array{x.block(0, y.columns), x.block(y.columns, y.columns)}, std::array{y},
                  GatedForward{activation, bias, y.columns}, options, stream);
  } else {
    internal::map(std::array{x}, std::array{y}, PlainForward{activation, bias}, options, stream);
  }
}

std::size_t activation_backward_workspace(Index rows, Index columns) {
  // A gated activation sums two halves of the columns.
  const std::size_t plain = internal::map_sums_workspace(rows, columns, 1);
  const std::size_t halves = internal::map_sums_workspace(rows, columns / 2, 2);
  return plain > halves ? plain : halves;
}

void activation_backward(Activation activation, ConstMatrixView x, ConstVector bias,
                         ConstMatrixView dy, MatrixView dx, Vector d_bias, Workspace workspace,
                         cudaStream_t stream) {
  const internal::MapOptions options{"activation_backward", bias.data == nullptr};
  if (gated(activation)) {
    const Index width = dy.columns;
    internal::require(x.columns == 2 * width, "a gated activation halves the width");
    map_with_bias(std::array{x.block(0, width), x.block(width, width), dy},
                  std::array{dx.block(0, width), dx.block(width, width)},
                  GatedBackward{activation, bias, width}, d_bias, options, workspace, stream);
  } else {
    map_with_bias(std::array{x, dy}, std::array{dx}, PlainBackward{activation, bias}, d_bias,
                  options, workspace, stream);
  }
}

void bias_activation_backward(Activation activation, ConstMatrixView dy, ConstMatrixView y,
                              MatrixView dx, Vector d_bias, Workspace workspace,
                              cudaStream_t stream) {
  internal::require(activation == Activation::kNone || activation == Activation::kRelu,
                    "only none and relu are told by their output");
  if (activation == Activation::kRelu) {
    map_with_bias(std::array{dy, y}, std::array{dx}, ReluBackward{}, d_bias,
                  {"bias_activation_backward", true}, workspace, stream);
    return;
  }
  map_with_bias(std::array{dy, dy}, std::array{dx}, PlainBackward{Activation::kNone, {}}, d_bias,
                {"bias_activation_backward", true}, workspace, stream);
}

}  // namespace stepcast::runtime::cuda::kernels
