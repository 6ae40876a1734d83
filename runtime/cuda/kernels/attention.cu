#include "runtime/cuda/kernels/attention.h"

#include <cfloat>
#include <cmath>

#include "runtime/cuda/kernels/internal/attention_launch.h"
#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

bool half_format(Format format) { return format == Format::kBf16 || format == Format::kFp16; }

bool tensor_cores(const AttentionShape& shape, Format format) {
  return half_format(format) && (shape.head_dim == 64 || shape.head_dim == 128);
}

constexpr Index kWidestPlain = 256;

/// The shape with its scale filled in, after checking it.
AttentionShape checked(AttentionShape shape, const ConstMatrixView& q, const ConstMatrixView& k) {
  internal::require(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0,
                    "query heads are a multiple of key heads");
  internal::require(!shape.causal || shape.kv_length >= shape.query_length,
                    "causal attention has at least as many keys as queries");
  internal::require(
      q.rows == shape.batch * shape.query_length && q.columns == shape.heads * shape.head_dim,
      "queries are [batch * query_length, heads * head_dim]");
  internal::require(
      k.rows == shape.batch * shape.kv_length && k.columns == shape.kv_heads * shape.head_dim,
      "keys are [batch * kv_length, kv_heads * head_dim]");
  internal::require(shape.head_dim <= kWidestPlain, "heads of up to 256 elements");
  shape.window = shape.causal ? shape.window : 0;
  internal::require(
      shape.begins == nullptr ||
          (shape.ends != nullptr && shape.query_length == shape.kv_length && shape.window == 0),
      "sequences have as many keys as queries, and no window");
  if (shape.scale == 0) {
    shape.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  }
  return shape;
}

bool use_tensor_cores(const AttentionShape& shape, std::initializer_list<ConstMatrixView> all) {
  bool fits = tensor_cores(shape, all.begin()->format);
  for (const ConstMatrixView& m : all) {
    fits = fits && m.format == all.begin()->format && internal::packs(m, 8);
  }
  return fits;
}

constexpr Index kMostSequences = 65535;  // blocks of a grid in z

/// Calls f(shape, first) for [first, first + shape.batch) of the sequences, as many as a launch
/// takes.
template <class F>
void by_launch(AttentionShape shape, F f) {
  const Index batch = shape.batch;
  for (Index first = 0; first < batch; first += kMostSequences) {
    shape.batch = batch - first < kMostSequences ? batch - first : kMostSequences;
    f(shape, first);
    if (shape.begins != nullptr) {
      shape.begins += shape.batch * shape.query_length;
      shape.ends += shape.batch * shape.query_length;
    }
  }
}

constexpr int kRowWarps = 8;

/// One warp a row and head: delta[batch, head, query] = sum of dO * O.
__global__ void delta_kernel(Operand out, Operand d_out, Index rows, Index length, Index heads,
                             Index head_dim, float* delta) {
  const Index item = static_cast<Index>(blockIdx.x) * kRowWarps + threadIdx.y;
  if (item >= rows * heads) {
    return;
  }
  const Index row = item / heads;
  const Index head = item % heads;
  float sum = 0;
  for (Index i = threadIdx.x; i < head_dim; i += 32) {
    const Index column = head * head_dim + i;
    sum += internal::load_one(out.data, out.format, row * out.stride + column) *
           internal::load_one(d_out.data, d_out.format, row * d_out.stride + column);
  }
  sum = internal::warp_reduce(sum, internal::Add{});
  if (threadIdx.x == 0) {
    delta[(row / length * heads + head) * length + row % length] = sum;
  }
}

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

const char* attention_kernel(const AttentionShape& shape, Format format) {
  if (tensor_cores(shape, format)) {
    return "flash, tensor cores";
  }
  return element_bytes(format) > 0 && shape.head_dim <= kWidestPlain ? "flash, fp32" : "";
}

void attention_forward(const AttentionShape& shape, ConstMatrixView q, ConstMatrixView k,
                       ConstMatrixView v, MatrixView out, float* log_sum_exp, cudaStream_t stream) {
  const AttentionShape s = checked(shape, q, k);
  if (q.rows == 0 || q.columns == 0) {
    return;
  }
  const auto forward =
      use_tensor_cores(s, {q, k, v, out}) ? internal::flash_forward : internal::plain_forward;
  by_launch(s, [&](const AttentionShape& part, Index first) {
    const Index row = first * s.query_length, rows = part.batch * s.query_length;
    const Index key = first * s.kv_length, keys = part.batch * s.kv_length;
    forward(part, q.slice(row, rows), k.slice(key, keys), v.slice(key, keys), out.slice(row, rows),
            log_sum_exp + row * s.heads, stream);
  });
}

std::size_t attention_backward_workspace(const AttentionShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.heads * shape.query_length) * sizeof(float);
}

void attention_backward(const AttentionShape& shape, const AttentionBackward& t,
                        Workspace workspace, cudaStream_t stream) {
  const AttentionShape s = checked(shape, t.q, t.k);
  if (t.q.rows == 0 || t.q.columns == 0) {
    return;
  }
  internal::require_workspace(workspace.bytes, attention_backward_workspace(s),
                              "attention_backward");
  auto* delta = static_cast<float*>(workspace.data);
  const auto blocks = static_cast<unsigned>(internal::ceil_div(t.q.rows * s.heads, kRowWarps));
  internal::launch("attention_backward: rowsum(dO * O)", delta_kernel,
                   {blocks, dim3(32, kRowWarps)}, stream, internal::operand(t.out),
                   internal::operand(t.d_out), t.q.rows, s.query_length, s.heads, s.head_dim,
                   delta);
  const auto backward = use_tensor_cores(s, {t.q, t.k, t.v, t.d_out, t.d_q, t.d_k, t.d_v})
                            ? internal::flash_backward
                            : internal::plain_backward;
  by_launch(s, [&](const AttentionShape& part, Index first) {
    const Index row = first * s.query_length, rows = part.batch * s.query_length;
    const Index key = first * s.kv_length, keys = part.batch * s.kv_length;
    backward(part,
             {t.q.slice(row, rows), t.k.slice(key, keys), t.v.slice(key, keys),
              t.out.slice(row, rows), t.d_out.slice(row, rows), t.log_sum_exp + row * s.heads,
              t.d_q.slice(row, rows), t.d_k.slice(key, keys), t.d_v.slice(key, keys)},
             delta + row * s.heads, stream);
  });
}

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
