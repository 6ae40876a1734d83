#include "runtime/cuda/kernels/attention.h"

#include <cfloat>
#include <cmath>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

constexpr int kSoftmaxThreads = 256;

__global__ void __launch_bounds__(kSoftmaxThreads)
    softmax_kernel(Operand x, Index columns, float scale, Index query_length, Index diagonal,
                   Index window, Operand out) {
  __shared__ float shared[32];
  const Index row = blockIdx.x;
  const Index limit = row % query_length + diagonal + 1;
  const Index visible = limit < columns ? limit : columns;
  const Index hidden = window > 0 && limit > window ? limit - window : 0;
  float largest = -FLT_MAX;
  for (Index j = hidden + threadIdx.x; j < visible; j += kSoftmaxThreads) {
    largest = fmaxf(largest, scale * internal::load_one(x.data, x.format, row * x.stride + j));
  }
  largest = internal::block_reduce(largest, -FLT_MAX, internal::Maximum{}, shared);
  float sum = 0;
  for (Index j = hidden + threadIdx.x; j < visible; j += kSoftmaxThreads) {
    sum += expf(scale * internal::load_one(x.data, x.format, row * x.stride + j) - largest);
  }
  sum = internal::block_reduce(sum, 0.0F, internal::Add{}, shared);
  const float factor = sum > 0 ? 1.0F / sum : 0.0F;
  for (Index j = threadIdx.x; j < columns; j += kSoftmaxThreads) {
    const float value =
        j >= hidden && j < visible
            ? factor *
                  expf(scale * internal::load_one(x.data, x.format, row * x.stride + j) - largest)
            : 0.0F;
    internal::store_one(out.data, out.format, row * out.stride + j, value);
  }
}

__global__ void __launch_bounds__(kSoftmaxThreads)
    softmax_backward_kernel(Operand p, Operand dp, Index columns, float scale, Operand dx) {
  __shared__ float shared[32];
  const Index row = blockIdx.x;
  float sum = 0;
  for (Index j = threadIdx.x; j < columns; j += kSoftmaxThreads) {
    sum += internal::load_one(p.data, p.format, row * p.stride + j) *
           internal::load_one(dp.data, dp.format, row * dp.stride + j);
  }
  sum = internal::block_reduce(sum, 0.0F, internal::Add{}, shared);
  for (Index j = threadIdx.x; j < columns; j += kSoftmaxThreads) {
    const float value = internal::load_one(p.data, p.format, row * p.stride + j) *
                        (internal::load_one(dp.data, dp.format, row * dp.stride + j) - sum);
    internal::store_one(dx.data, dx.format, row * dx.stride + j, scale * value);
  }
}

}  // namespace

void softmax_rows(ConstMatrixView x, float scale, Index query_length, Index diagonal, Index window,
                  MatrixView out, cudaStream_t stream) {
  if (x.rows == 0 || x.columns == 0) {
    return;
  }
  internal::launch("softmax_rows", softmax_kernel, {static_cast<unsigned>(x.rows), kSoftmaxThreads},
                   stream, internal::operand(x), x.columns, scale, query_length, diagonal, window,
                   internal::operand(out));
}

void softmax_rows_backward(ConstMatrixView p, ConstMatrixView dp, float scale, MatrixView dx,
                           cudaStream_t stream) {
  if (p.rows == 0 || p.columns == 0) {
    return;
  }
  internal::launch("softmax_rows_backward", softmax_backward_kernel,
                   {static_cast<unsigned>(p.rows), kSoftmaxThreads}, stream, internal::operand(p),
                   internal::operand(dp), p.columns, scale, internal::operand(dx));
}

}  // namespace stepcast::runtime::cuda::kernels
