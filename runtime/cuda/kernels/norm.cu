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

/// Threads of the backward that a multiprocessor holds, by the elements of a row that each has.
constexpr int resident_threads(int elements) {
  return elements <= 8 ? 2 * kMostThreads : kMostThreads;
}

/// dx of rows blockIdx.x, + gridDim.x, ...: a thread holds P packs of g = dy * weight and n = (x -
/// mean) * r, and has the next row's on their way meanwhile. Its sums of dy * n and dy over the
/// rows go into partial [block][2][columns].
template <class T, int N, int P>
__global__ void __launch_bounds__(kMostThreads, resident_threads(N* P) / kMostThreads)
    norm_backward_kernel(bool centred, Index rows, Index columns, Operand dy, Operand x,
                         ConstVector weight, const float* statistics, Operand residual, Operand dx,
                         float* partial) {
  __shared__ float shared[32];
  const auto width = static_cast<float>(columns);
  const auto column_of = [](int p) {
    return (static_cast<Index>(p) * blockDim.x + threadIdx.x) * N;
  };
  internal::Raw<T, N> next_dy[P];
  internal::Raw<T, N> next_x[P];
  const auto fetch = [&](Index row) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (row < rows && column_of(p) < columns) {
        next_dy[p].load(static_cast<const T*>(dy.data) + row * dy.stride + column_of(p));
        next_x[p].load(static_cast<const T*>(x.data) + row * x.stride + column_of(p));
      }
    }
  };
  float d_weight[P][N] = {};
  float d_bias[P][N] = {};
  fetch(blockIdx.x);
  for (Index row = blockIdx.x; row < rows; row += gridDim.x) {
    const float mean = statistics[2 * row];
    const float r = statistics[2 * row + 1];
    float g[P][N];
    float n[P][N];
    float sum_g = 0;
    float sum_gn = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (column_of(p) < columns) {
        float w[N];
        next_dy[p].to_floats(g[p]);
        next_x[p].to_floats(n[p]);
        internal::load<internal::Any, N>(weight.data, weight.format, column_of(p), w);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          n[p][i] = (n[p][i] - mean) * r;
          d_weight[p][i] += g[p][i] * n[p][i];
          d_bias[p][i] += g[p][i];
          g[p][i] *= w[i];
          sum_g += g[p][i];
          sum_gn += g[p][i] * n[p][i];
        }
      }
    }
    fetch(row + gridDim.x);
    const float mean_gn = internal::block_reduce(sum_gn, 0.0F, internal::Add{}, shared) / width;
    const float mean_g =
        centred ? internal::block_reduce(sum_g, 0.0F, internal::Add{}, shared) / width : 0.0F;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      if (column_of(p) < columns) {
        float out[N] = {};
        if (residual.data != nullptr) {
          internal::load<T, N>(residual.data, residual.format, row * residual.stride + column_of(p),
                               out);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
          out[i] += r * (g[p][i] - mean_g - n[p][i] * mean_gn);
        }
        internal::store<T, N>(dx.data, dx.format, row * dx.stride + column_of(p), out);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (column_of(p) < columns) {
      float* const to = partial + static_cast<Index>(blockIdx.x) * 2 * columns + column_of(p);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        to[i] = d_weight[p][i];
        to[columns + i] = d_bias[p][i];
      }
    }
  }
}

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

namespace {

/// Threads of a block of the backward whose threads have `elements` of a row each.
unsigned backward_threads(Index columns, int elements) {
  const Index wanted = internal::power_of_two(internal::ceil_div(columns, elements));
  return wanted < 64 ? 64U : static_cast<unsigned>(wanted);
}

/// Count of blocks: as many as the device holds at once.
unsigned backward_blocks(Index rows, Index columns, int elements) {
  const Index most = Index{internal::multiprocessors()} * resident_threads(elements) /
                     backward_threads(columns, elements);
  const Index blocks = rows < most ? rows : most;
  return static_cast<unsigned>(blocks > 0 ? blocks : 1);
}

/// One launch where a row fits packs of N, P a thread.
template <class T, int N, int P>
void launch_backward(bool centred, ConstMatrixView dy, ConstMatrixView x, ConstVector weight,
                     const float* statistics, ConstMatrixView residual, MatrixView dx,
                     const internal::SumTargets& targets, float* partial, cudaStream_t stream) {
  const unsigned threads = backward_threads(x.columns, N * P);
  internal::require(threads <= kMostThreads, "a norm's row fits one block");
  const unsigned blocks = backward_blocks(x.rows, x.columns, N * P);
  internal::launch("norm_backward", norm_backward_kernel<T, N, P>, {blocks, threads}, stream,
                   centred, x.rows, x.columns, internal::operand(dy), internal::operand(x), weight,
                   statistics, internal::operand(residual), internal::operand(dx), partial);
  internal::add_partial_sums(partial, blocks, x.columns, 2, targets, stream);
}

}  // namespace

std::size_t norm_backward_workspace(Index rows, Index columns) {
  Index blocks = 0;
  for (const int elements : {8, 16, 32}) {
    const Index b = backward_blocks(rows, columns, elements);
    blocks = b > blocks ? b : blocks;
  }
  return static_cast<std::size_t>(blocks * 2 * columns) * sizeof(float);
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
  internal::require_workspace(workspace.bytes, norm_backward_workspace(x.rows, x.columns),
                              "norm_backward");
  internal::with_element(x.format, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kN = internal::kPack<T>;
    const auto run = [&](auto n, auto elements) {
      launch_backward<T, decltype(n)::value, decltype(elements)::value / decltype(n)::value>(
          norm == Norm::kLayerNorm, dy, x, weight, statistics, residual, dx, {{d_weight, d_bias}},
          static_cast<float*>(workspace.data), stream);
    };
    const bool packed = internal::packs(x, kN) && internal::packs(dy, kN) &&
                        internal::packs(dx, kN) &&
                        (!with_residual || internal::packs(residual, kN)) &&
                        vector_packs(weight.data, weight.format, kN);
    using std::integral_constant;
    if (!packed) {
      run(integral_constant<int, 1>{}, integral_constant<int, 16>{});
    } else if (x.columns <= 8 * kMostThreads) {
      run(integral_constant<int, kN>{}, integral_constant<int, 8>{});
    } else if (x.columns <= 16 * kMostThreads) {
      run(integral_constant<int, kN>{}, integral_constant<int, 16>{});
    } else {
      run(integral_constant<int, kN>{}, integral_constant<int, 32>{});
    }
  });
}

}  // namespace stepcast::runtime::cuda::kernels
