#include "runtime/cuda/kernels/interaction.h"

#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

constexpr unsigned kThreads = 256;

/// Row i of a lower triangle without diagonal that holds element p: pairs run (1,0), (2,0), (2,1),
/// ...
__device__ inline int row_of_pair(int p) {
  int i = static_cast<int>((1.0F + sqrtf(8.0F * static_cast<float>(p) + 1.0F)) * 0.5F);
  while (i * (i - 1) / 2 > p) {
    --i;
  }
  while ((i + 1) * i / 2 <= p) {
    ++i;
  }
  return i;
}

/// One sample a block. Features lie in shared memory with an odd pitch, so that threads that read
/// one column of different rows use different banks.
__device__ inline int pitch_of(int dim) { return dim | 1; }

__device__ inline void load_features(const Operand& x, Index sample, int features, int dim,
                                     float* shared) {
  const int pitch = pitch_of(dim);
  for (int i = static_cast<int>(threadIdx.x); i < features * dim;
       i += static_cast<int>(blockDim.x)) {
    shared[i / dim * pitch + i % dim] = internal::load_one(x.data, x.format, sample * x.stride + i);
  }
}

/// Each thread sums whole pairs.
__global__ void __launch_bounds__(kThreads)
    dot_forward_kernel(int features, int dim, Operand x, Operand out) {
  auto* const shared = internal::dynamic_shared<float>();
  const Index sample = blockIdx.x;
  load_features(x, sample, features, dim, shared);
  __syncthreads();
  const int pitch = pitch_of(dim);
  const int pairs = features * (features - 1) / 2;
  for (int p = static_cast<int>(threadIdx.x); p < dim + pairs; p += static_cast<int>(blockDim.x)) {
    float value = 0;
    if (p < dim) {
      value = shared[p];
    } else {
      const int i = row_of_pair(p - dim);
      const int j = p - dim - i * (i - 1) / 2;
      const float* a = shared + i * pitch;
      const float* b = shared + j * pitch;
      for (int k = 0; k < dim; ++k) {
        value += a[k] * b[k];
      }
    }
    internal::store_one(out.data, out.format, sample * out.stride + p, value);
  }
}

/// Each thread makes one column of one feature: sum over the others of d_pair * column.
__global__ void __launch_bounds__(kThreads)
    dot_backward_kernel(int features, int dim, Operand d_out, Operand x, Operand dx) {
  auto* const shared = internal::dynamic_shared<float>();
  const Index sample = blockIdx.x;
  const int pitch = pitch_of(dim);
  const int pairs = features * (features - 1) / 2;
  float* d_pairs = shared + features * pitch;
  load_features(x, sample, features, dim, shared);
  for (int p = static_cast<int>(threadIdx.x); p < pairs; p += static_cast<int>(blockDim.x)) {
    d_pairs[p] = internal::load_one(d_out.data, d_out.format, sample * d_out.stride + dim + p);
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < features * dim;
       e += static_cast<int>(blockDim.x)) {
    const int i = e / dim;
    const int k = e % dim;
    float value =
        i == 0 ? internal::load_one(d_out.data, d_out.format, sample * d_out.stride + k) : 0.0F;
    const float* row = d_pairs + i * (i - 1) / 2;
    for (int j = 0; j < i; ++j) {
      value += row[j] * shared[j * pitch + k];
    }
    for (int j = i + 1; j < features; ++j) {
      value += d_pairs[j * (j - 1) / 2 + i] * shared[j * pitch + k];
    }
    internal::store_one(dx.data, dx.format, sample * dx.stride + e, value);
  }
}

constexpr std::size_t kMostShared = 160 * 1024;  // of one block, on every device we build for

/// Shared memory of a block.
std::size_t shared_memory(const DotInteraction& shape, bool backward) {
  const Index floats = shape.features * (shape.dim | 1) + (backward ? shape.pairs() : 0);
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  internal::require(bytes <= kMostShared, "the features of one sample fit shared memory");
  return bytes;
}

void check_shapes(const DotInteraction& shape, const ConstMatrixView& x,
                  const ConstMatrixView& out) {
  internal::require(x.rows == out.rows && x.columns == shape.features * shape.dim &&
                        out.columns == shape.output_width(),
                    "an interaction maps [batch, features * dim] to [batch, dim + pairs]");
}

/// Inputs x0, u, x.
struct CrossForward {
  ConstVector bias;
  template <int N>
  __device__ void operator()(Index, Index column, float (&x)[3][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] =
          x[0][i] * (x[1][i] + internal::load_one(bias.data, bias.format, column + i)) + x[2][i];
    }
  }
};

/// Inputs d_out, x0, u, [d_x0]; outputs du, d_x0; the sum of a column is that of du.
struct CrossBackward {
  ConstVector bias;
  template <int Inputs, int N>
  __device__ void operator()(Index, Index column, float (&x)[Inputs][N], float (&y)[2][N],
                             float (&s)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      const float mixed = x[2][i] + internal::load_one(bias.data, bias.format, column + i);
      y[1][i] = x[0][i] * mixed;
      if constexpr (Inputs == 4) {
        y[1][i] += x[3][i];
      }
      s[0][i] = y[0][i] = x[0][i] * x[1][i];
    }
  }
};

}  // namespace

void dot_interaction_forward(const DotInteraction& shape, ConstMatrixView x, MatrixView out,
                             cudaStream_t stream) {
  check_shapes(shape, x, out);
  if (x.rows == 0) {
    return;
  }
  const std::size_t shared = shared_memory(shape, false);
  internal::launch("dot_interaction_forward", dot_forward_kernel,
                   {static_cast<unsigned>(x.rows), kThreads, shared}, stream,
                   static_cast<int>(shape.features), static_cast<int>(shape.dim),
                   internal::operand(x), internal::operand(out));
}

void dot_interaction_backward(const DotInteraction& shape, ConstMatrixView d_out, ConstMatrixView x,
                              MatrixView dx, cudaStream_t stream) {
  check_shapes(shape, x, d_out);
  check_shapes(shape, dx, d_out);
  if (x.rows == 0) {
    return;
  }
  const std::size_t shared = shared_memory(shape, true);
  internal::launch("dot_interaction_backward", dot_backward_kernel,
                   {static_cast<unsigned>(x.rows), kThreads, shared}, stream,
                   static_cast<int>(shape.features), static_cast<int>(shape.dim),
                   internal::operand(d_out), internal::operand(x), internal::operand(dx));
}

void cross_forward(ConstMatrixView x0, ConstMatrixView u, ConstVector bias, ConstMatrixView x,
                   MatrixView out, cudaStream_t stream) {
  internal::map(std::array{x0, u, x}, std::array{out}, CrossForward{bias}, {"cross_forward"},
                stream);
}

std::size_t cross_backward_workspace(Index rows, Index columns) {
  return internal::map_sums_workspace(rows, columns, 1);
}

void cross_backward(ConstMatrixView d_out, ConstMatrixView x0, ConstMatrixView u, ConstVector bias,
                    MatrixView du, Vector d_bias, MatrixView d_x0, bool accumulate,
                    Workspace workspace, cudaStream_t stream) {
  const internal::SumTargets targets{{d_bias, {}}};
  if (accumulate) {
    internal::map<1>(std::array<ConstMatrixView, 4>{d_out, x0, u, d_x0}, std::array{du, d_x0},
                     CrossBackward{bias}, {"cross_backward"}, stream, workspace, targets);
  } else {
    internal::map<1>(std::array{d_out, x0, u}, std::array{du, d_x0}, CrossBackward{bias},
                     {"cross_backward"}, stream, workspace, targets);
  }
}

}  // namespace stepcast::runtime::cuda::kernels
