#include "runtime/cuda/kernels/sequence_pool.h"

#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

/// 1 / size of a bag.
__device__ inline float mean_factor(const std::int64_t* offsets, Index bag) {
  const Index size = offsets[bag + 1] - offsets[bag];
  return 1.0F / static_cast<float>(size > 1 ? size : 1);
}

/// One bag of N columns a thread; y is the present value of `out`.
template <bool Accumulate>
struct Mean {
  Operand rows;
  const std::int64_t* offsets;
  const std::int64_t* sizes;
  template <int Inputs, int N>
  __device__ void operator()(Index bag, Index column, float (&x)[Inputs][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    float sum[N] = {};
    for (Index i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      for (int k = 0; k < N; ++k) {
        sum[k] += internal::load_one(rows.data, rows.format, i * rows.stride + column + k);
      }
    }
    const float factor = mean_factor(sizes, bag);
    for (int k = 0; k < N; ++k) {
      y[0][k] = (Accumulate ? x[0][k] : 0.0F) + factor * sum[k];
    }
  }
};

/// Eight warps a block, one bag a warp: its gradient goes to each of its rows.
__global__ void spread_kernel(Operand d_out, Index bags, Index columns, const std::int64_t* offsets,
                              const std::int64_t* sizes, Operand dx) {
  const Index bag = static_cast<Index>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (bag >= bags) {
    return;
  }
  const float factor = mean_factor(sizes, bag);
  for (Index column = threadIdx.x; column < columns; column += 32) {
    const float value =
        factor * internal::load_one(d_out.data, d_out.format, bag * d_out.stride + column);
    for (Index i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      internal::store_one(dx.data, dx.format, i * dx.stride + column, value);
    }
  }
}

}  // namespace

void sequence_mean_forward(ConstMatrixView x, const std::int64_t* offsets,
                           const std::int64_t* size_offsets, bool accumulate, MatrixView out,
                           cudaStream_t stream) {
  internal::require(x.columns == out.columns, "pooling keeps the width");
  const std::int64_t* sizes = size_offsets != nullptr ? size_offsets : offsets;
  if (accumulate) {
    internal::map(std::array<ConstMatrixView, 1>{out}, std::array{out},
                  Mean<true>{internal::operand(x), offsets, sizes}, {"sequence_mean_forward"},
                  stream);
  } else {
    internal::map(std::array<ConstMatrixView, 0>{}, std::array{out},
                  Mean<false>{internal::operand(x), offsets, sizes}, {"sequence_mean_forward"},
                  stream);
  }
}

void sequence_mean_backward(ConstMatrixView d_out, const std::int64_t* offsets,
                            const std::int64_t* size_offsets, MatrixView dx, cudaStream_t stream) {
  internal::require(dx.columns == d_out.columns, "pooling keeps the width");
  if (d_out.rows == 0) {
    return;
  }
  internal::launch("sequence_mean_backward", spread_kernel,
                   {static_cast<unsigned>(internal::ceil_div(d_out.rows, 8)), dim3(32, 8)}, stream,
                   internal::operand(d_out), d_out.rows, d_out.columns, offsets,
                   size_offsets != nullptr ? size_offsets : offsets, internal::operand(dx));
}

}  // namespace stepcast::runtime::cuda::kernels
