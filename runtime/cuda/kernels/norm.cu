#include "runtime/cuda/kernels/norm.h"

#include "runtime/cuda/kernels/internal/map.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

constexpr int kMostThreads = 512;

/// Packs of N elements of a row that a thread keeps in registers.
template <int N>
constexpr int kHeld = N > 1 ? 32 / N : 16;

/// Calls visit(pack, column) for the packs of this thread: pack p of thread t starts at column (p *
/// threads + t) * N.
template <int N, class Visit>
__device__ inline void for_each_pack(Index columns, Visit visit) {
#pragma unroll
  for (int p = 0; p < kHeld<N>; ++p) {
    const Index column = (static_cast<Index>(p) * blockDim.x + threadIdx.x) * N;
    if (column < columns) {
      visit(p, column);
    }
  }
}

/// One block a row; the row stays in registers.
template <class T, int N>
__global__ void __launch_bounds__(kMostThreads)
    norm_forward_kernel(bool centred, Index columns, Operand x, ConstVector weight,
                        ConstVector bias, float epsilon, Operand y, float* statistics) {
  __shared__ float shared[32];
  const Index row = blockIdx.x;
  const auto width = static_cast<float>(columns);
  float held[kHeld<N>][N];
  float sum = 0;
  for_each_pack<N>(columns, [&](int p, Index column) {
    internal::load<T, N>(x.data, x.format, row * x.stride + column, held[p]);
    for (int i = 0; i < N; ++i) {
      sum += held[p][i];
    }
  });
  float mean = 0;
  if (centred) {
    mean = internal::block_reduce(sum, 0.0F, internal::Add{}, shared) / width;
  }
  float squares = 0;
  for_each_pack<N>(columns, [&](int p, Index) {
    for (int i = 0; i < N; ++i) {
      const float distance = held[p][i] - mean;
      squares += distance * distance;
    }
  });
  squares = internal::block_reduce(squares, 0.0F, internal::Add{}, shared);
  const float r = 1.0F / sqrtf(squares / width + epsilon);
  if (threadIdx.x == 0) {
    statistics[2 * row] = mean;
    statistics[2 * row + 1] = r;
  }
  for_each_pack<N>(columns, [&](int p, Index column) {
    float w[N];
    float out[N];
    internal::load<internal::Any, N>(weight.data, weight.format, column, w);
    for (int i = 0; i < N; ++i) {
      out[i] = (held[p][i] - mean) * r * w[i];
    }
    if (bias.data != nullptr) {
      internal::load<internal::Any, N>(bias.data, bias.format, column, w);
      for (int i = 0; i < N; ++i) {
        out[i] += w[i];
      }
    }
    internal::store<T, N>(y.data, y.format, row * y.stride + column, out);
  });
}

/// dx of one row a block. Holds g = dy * weight and n = (x - mean) * r.
template <class T, int N>
__global__ void __launch_bounds__(kMostThreads)
    norm_backward_kernel(bool centred, Index columns, Operand dy, Operand x, ConstVector weight,
                         const float* statistics, Operand residual, Operand dx) {
  __shared__ float shared[32];
  const Index row = blockIdx.x;
  const auto width = static_cast<float>(columns);
  const float mean = statistics[2 * row];
  const float r = statistics[2 * row + 1];
  float g[kHeld<N>][N];
  float n[kHeld<N>][N];
  float sum_g = 0;
  float sum_gn = 0;
  for_each_pack<N>(columns, [&](int p, Index column) {
    float w[N];
    internal::load<T, N>(dy.data, dy.format, row * dy.stride + column, g[p]);
    internal::load<T, N>(x.data, x.format, row * x.stride + column, n[p]);
    internal::load<internal::Any, N>(weight.data, weight.format, column, w);
    for (int i = 0; i < N; ++i) {
      g[p][i] *= w[i];
      n[p][i] = (n[p][i] - mean) * r;
      sum_g += g[p][i];
      sum_gn += g[p][i] * n[p][i];
    }
  });
  const float mean_gn = internal::block_reduce(sum_gn, 0.0F, internal::Add{}, shared) / width;
  const float mean_g =
      centred ? internal::block_reduce(sum_g, 0.0F, internal::Add{}, shared) / width : 0.0F;
  for_each_pack<N>(columns, [&](int p, Index column) {
    float out[N] = {};
    if (residual.data != nullptr) {
      internal::load<T, N>(residual.data, residual.format, row * residual.stride + column, out);
    }
    for (int i = 0; i < N; ++i) {
      out[i] += r * (g[p][i] - mean_g - n[p][i] * mean_gn);
    }
    internal::store<T, N>(dx.data, dx.format, row * dx.stride + column, out);
  });
}

/// Inputs dy, x; column sums of dy * n and of dy.
struct ParameterGradients {
  const float* statistics;
  template <int N>
  __device__ void operator()(Index row, Index, float (&x)[2][N], float (&)[1][N],
                             float (&s)[2][N]) const {
    const float mean = statistics[2 * row];
    const float r = statistics[2 * row + 1];
    for (int i = 0; i < N; ++i) {
      s[0][i] = x[0][i] * (x[1][i] - mean) * r;
      s[1][i] = x[0][i];
    }
  }
};

template <class Void>
bool vector_packs(const Void* data, Format format, int n) {
  return data == nullptr || reinterpret_cast<std::uintptr_t>(data) %
                                    (element_bytes(format) * static_cast<std::size_t>(n) < 16
                                         ? element_bytes(format) * static_cast<std::size_t>(n)
                                         : 16) ==
                                0;
}

template <int N>
unsigned threads_of(Index columns) {
  const Index packs = internal::ceil_div(columns, N);
  internal::require(packs <= Index{kHeld<N>} * kMostThreads, "a norm's row fits one block");
  const Index threads = internal::power_of_two(internal::ceil_div(packs, 4));
  return static_cast<unsigned>(threads < 64 ? 64 : threads > kMostThreads ? kMostThreads : threads);
}

}  // namespace

void norm_forward(Norm norm, ConstMatrixView x, ConstVector weight, ConstVector bias, float epsilon,
                  MatrixView y, float* statistics, cudaStream_t stream) {
  internal::require(x.format == y.format, "a norm keeps the format");
  if (x.rows == 0) {
    return;
  }
  internal::with_element(x.format, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kN = internal::kPack<T>;
    const bool centred = norm == Norm::kLayerNorm;
    const auto rows = static_cast<unsigned>(x.rows);
    if (internal::packs(x, kN) && internal::packs(y, kN) &&
        vector_packs(weight.data, weight.format, kN) && vector_packs(bias.data, bias.format, kN)) {
      internal::launch("norm_forward", norm_forward_kernel<T, kN>,
                       {rows, threads_of<kN>(x.columns)}, stream, centred, x.columns,
                       internal::operand(x), weight, bias, epsilon, internal::operand(y),
                       statistics);
    } else {
      internal::launch("norm_forward", norm_forward_kernel<T, 1>, {rows, threads_of<1>(x.columns)},
                       stream, centred, x.columns, internal::operand(x), weight, bias, epsilon,
                       internal::operand(y), statistics);
    }
  });
}

std::size_t norm_backward_workspace(Index rows, Index columns) {
  return internal::map_sums_workspace(rows, columns, 2);
}

void norm_backward(Norm norm, ConstMatrixView dy, ConstMatrixView x, ConstVector weight,
                   const float* statistics, ConstMatrixView residual, MatrixView dx,
                   Vector d_weight, Vector d_bias, Workspace workspace, cudaStream_t stream) {
  const bool with_residual = residual.data != nullptr;
  internal::require(dy.format == x.format && dx.format == x.format &&
                        (!with_residual || residual.format == x.format),
                    "a norm keeps the format");
  if (x.rows == 0) {
    return;
  }
  // First the parameters' gradients: dx may be dy.
  internal::map<2>(std::array{dy, x}, std::array<MatrixView, 0>{}, ParameterGradients{statistics},
                   {"norm_backward"}, stream, workspace, {{d_weight, d_bias}});
  internal::with_element(x.format, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kN = internal::kPack<T>;
    const bool centred = norm == Norm::kLayerNorm;
    const auto rows = static_cast<unsigned>(x.rows);
    if (internal::packs(x, kN) && internal::packs(dy, kN) && internal::packs(dx, kN) &&
        (!with_residual || internal::packs(residual, kN)) &&
        vector_packs(weight.data, weight.format, kN)) {
      internal::launch("norm_backward", norm_backward_kernel<T, kN>,
                       {rows, threads_of<kN>(x.columns)}, stream, centred, x.columns,
                       internal::operand(dy), internal::operand(x), weight, statistics,
                       internal::operand(residual), internal::operand(dx));
    } else {
      internal::launch("norm_backward", norm_backward_kernel<T, 1>,
                       {rows, threads_of<1>(x.columns)}, stream, centred, x.columns,
                       internal::operand(dy), internal::operand(x), weight, statistics,
                       internal::operand(residual), internal::operand(dx));
    }
  });
}

}  // namespace stepcast::runtime::cuda::kernels
