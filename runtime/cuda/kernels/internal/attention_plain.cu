#include "runtime/cuda/kernels/internal/attention_launch.h"
#include "runtime/cuda/kernels/internal/attention_tile.h"
#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

// Attention in fp32 arithmetic for what the tensor-core kernels do not cover: fp32 operands, other
// head widths, operands that cannot be read 16 bytes at a time.
namespace stepcast::runtime::cuda::kernels::internal {
namespace {

constexpr int kOther = 32;  // rows of the other side at a time, one a lane
constexpr int kWarps = 8;
constexpr int kPerWarp = 4;  // own rows of a warp
constexpr int kOwn = kWarps * kPerWarp;
constexpr int kSlices = 8;  // a lane holds columns lane, lane + 32, ...: head_dim <= 256

/// `count` rows of one head from row `first` on into shared memory, fp32, `pitch` floats apart;
/// zeros beyond `rows`.
__device__ void load_rows(float* to, int pitch, const Operand& from, Index rows, Index head,
                          Index first, int count, int head_dim) {
  for (int i = static_cast<int>(threadIdx.x); i < count * head_dim; i += 32 * kWarps) {
    const Index row = first + i / head_dim;
    const int column = i % head_dim;
    to[i / head_dim * pitch + column] =
        row < rows ? load_one(from.data, from.format,
                              (blockIdx.z * rows + row) * from.stride + head * head_dim + column)
                   : 0.0F;
  }
}

/// Dot products of a warp's own rows with the row of this lane.
__device__ void dot_rows(float (&dot)[kPerWarp], const float* own, const float* other, int pitch,
                         int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * kPerWarp;
  for (float& d : dot) {
    d = 0;
  }
  for (int column = 0; column < head_dim; ++column) {
    const float y = other[lane * pitch + column];
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      dot[i] += own[(first + i) * pitch + column] * y;
    }
  }
}

/// sum[i] += weights (one a lane) times the rows of `other`; a lane's columns.
__device__ void add_rows(float (&sum)[kPerWarp][kSlices], const float (&weight)[kPerWarp],
                         const float* other, int pitch, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int row = 0; row < kOther; ++row) {
    float w[kPerWarp];
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      w[i] = __shfl_sync(0xFFFFFFFFU, weight[i], row);
    }
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      if (s * 32 + lane < head_dim) {
        const float y = other[row * pitch + s * 32 + lane];
#pragma unroll
        for (int i = 0; i < kPerWarp; ++i) {
          sum[i][s] += w[i] * y;
        }
      }
    }
  }
}

__device__ void store_row(const Operand& to, Index rows, Index head, Index row, int head_dim,
                          const float (&x)[kSlices], float factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int s = 0; s < kSlices; ++s) {
    if (s * 32 + lane < head_dim) {
      store_one(to.data, to.format,
                (blockIdx.z * rows + row) * to.stride + head * head_dim + s * 32 + lane,
                factor * x[s]);
    }
  }
}

template <class M>
__global__ void __launch_bounds__(32 * kWarps) plain_forward_kernel(AttentionOperands<M> o) {
  const M mask = o.mask.of_sample(blockIdx.z);
  auto* const shared = dynamic_shared<float>();
  const int pitch = o.head_dim | 1;
  float* const own = shared;
  float* const other_k = own + kOwn * pitch;
  float* const other_v = other_k + kOther * pitch;
  const Index head = blockIdx.y;
  const Index first = static_cast<Index>(blockIdx.x) * kOwn;
  const int warp_first = static_cast<int>(threadIdx.x) / 32 * kPerWarp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_rows(own, pitch, o.q, mask.queries, head, first, kOwn, o.head_dim);
  float out[kPerWarp][kSlices] = {};
  float largest[kPerWarp];
  float total[kPerWarp] = {};
  for (float& m : largest) {
    m = -INFINITY;
  }
  const Span span = keys_of(mask, first, kOwn);
  for (Index first_key = span.begin; first_key < span.end; first_key += kOther) {
    __syncthreads();
    load_rows(other_k, pitch, o.k, mask.keys, head / o.group, first_key, kOther, o.head_dim);
    load_rows(other_v, pitch, o.v, mask.keys, head / o.group, first_key, kOther, o.head_dim);
    __syncthreads();
    float p[kPerWarp];
    dot_rows(p, own, other_k, pitch, o.head_dim);
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      const float score =
          mask.visible(first + warp_first + i, first_key + lane) ? p[i] * o.scale : -INFINITY;
      const float top = fmaxf(largest[i], warp_reduce(score, Maximum{}));
      const float base = top == -INFINITY ? 0.0F : top;
      const float shrink = expf(largest[i] - base);
      largest[i] = top;
      p[i] = expf(score - base);
      total[i] = total[i] * shrink + warp_reduce(p[i], Add{});
#pragma unroll
      for (int s = 0; s < kSlices; ++s) {
        out[i][s] *= shrink;
      }
    }
    add_rows(out, p, other_v, pitch, o.head_dim);
  }
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    const Index query = first + warp_first + i;
    if (query < mask.queries) {
      store_row(o.out, mask.queries, head, query, o.head_dim, out[i],
                total[i] > 0 ? 1.0F / total[i] : 0.0F);
      if (lane == 0) {
        o.log_sum_exp[(blockIdx.z * o.heads + head) * mask.queries + query] =
            largest[i] + logf(total[i]);
      }
    }
  }
}

/// As backward_kernel of the tensor cores: a block owns queries (dQ) or keys (dK, dV).
template <bool OwnsKeys, class M>
__global__ void __launch_bounds__(32 * kWarps) plain_backward_kernel(AttentionOperands<M> o) {
  const M mask = o.mask.of_sample(blockIdx.z);
  auto* const shared = dynamic_shared<float>();
  const int pitch = o.head_dim | 1;
  float* const own_x = shared;
  float* const own_y = own_x + kOwn * pitch;
  float* const other_x = own_y + kOwn * pitch;
  float* const other_y = other_x + kOther * pitch;
  const Index head = blockIdx.y;
  const Index first_own = static_cast<Index>(blockIdx.x) * kOwn;
  const int warp_first = static_cast<int>(threadIdx.x) / 32 * kPerWarp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Index queries = mask.queries;
  const Index keys = mask.keys;
  const Index own_rows = OwnsKeys ? keys : queries;
  const Index other_rows = OwnsKeys ? queries : keys;
  load_rows(own_x, pitch, OwnsKeys ? o.k : o.q, own_rows, head, first_own, kOwn, o.head_dim);
  load_rows(own_y, pitch, OwnsKeys ? o.v : o.d_out, own_rows, head, first_own, kOwn, o.head_dim);
  float d_x[kPerWarp][kSlices] = {};
  float d_y[kPerWarp][kSlices] = {};
  const Span span =
      OwnsKeys ? queries_of(mask, first_own, kOwn, kOther) : keys_of(mask, first_own, kOwn);
  for (Index member = 0; member < (OwnsKeys ? o.group : 1); ++member) {
    const Index query_head = OwnsKeys ? head * o.group + member : head;
    const Index other_head = OwnsKeys ? query_head : head / o.group;
    const Index statistics = (blockIdx.z * o.heads + query_head) * queries;
    for (Index first = span.begin; first < span.end; first += kOther) {
      __syncthreads();
      load_rows(other_x, pitch, OwnsKeys ? o.q : o.k, other_rows, other_head, first, kOther,
                o.head_dim);
      load_rows(other_y, pitch, OwnsKeys ? o.d_out : o.v, other_rows, other_head, first, kOther,
                o.head_dim);
      __syncthreads();
      float p[kPerWarp];
      float ds[kPerWarp];
      dot_rows(p, own_x, other_x, pitch, o.head_dim);
      dot_rows(ds, own_y, other_y, pitch, o.head_dim);
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i) {
        const Index own = first_own + warp_first + i;
        const Index query = OwnsKeys ? first + lane : own;
        const Index key = OwnsKeys ? own : first + lane;
        const bool seen = mask.visible(query, key);
        const float lse = seen ? o.log_sum_exp[statistics + query] : 0.0F;
        const float mean = seen ? o.delta[statistics + query] : 0.0F;
        p[i] = seen ? expf(p[i] * o.scale - lse) : 0.0F;
        ds[i] = p[i] * (ds[i] - mean);
      }
      add_rows(d_x, ds, other_x, pitch, o.head_dim);
      if (OwnsKeys) {
        add_rows(d_y, p, other_y, pitch, o.head_dim);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kPerWarp; ++i) {
    const Index row = first_own + warp_first + i;
    if (row < own_rows) {
      store_row(OwnsKeys ? o.d_k : o.d_q, own_rows, head, row, o.head_dim, d_x[i], o.scale);
      if (OwnsKeys) {
        store_row(o.d_v, own_rows, head, row, o.head_dim, d_y[i], 1.0F);
      }
    }
  }
}

template <class Kernel, class M>
void launch_blocks(Kernel kernel, const char* name, Index own_rows, Index heads, Index batch,
                   int tiles, const AttentionOperands<M>& o, cudaStream_t stream) {
  static_assert(kOwn == kOther, "tiles of shared memory are of one size");
  const std::size_t shared =
      static_cast<std::size_t>(tiles * kOwn * (o.head_dim | 1)) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(ceil_div(own_rows, kOwn)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batch));
  launch(name, kernel, {grid, 32 * kWarps, shared}, stream, o);
}

}  // namespace

void plain_forward(const AttentionShape& shape, const ConstMatrixView& q, const ConstMatrixView& k,
                   const ConstMatrixView& v, const MatrixView& out, float* log_sum_exp,
                   cudaStream_t stream) {
  with_mask(shape, [&](const auto& mask) {
    const auto o = forward_operands(shape, mask, q, k, v, out, log_sum_exp);
    launch_blocks(plain_forward_kernel<std::decay_t<decltype(mask)>>, "attention_forward, fp32",
                  shape.query_length, shape.heads, shape.batch, 3, o, stream);
  });
}

void plain_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                    const float* delta, cudaStream_t stream) {
  with_mask(shape, [&](const auto& mask) {
    using M = std::decay_t<decltype(mask)>;
    const auto o = backward_operands(shape, mask, tensors, delta);
    launch_blocks(plain_backward_kernel<true, M>, "attention_backward of keys, fp32",
                  shape.kv_length, shape.kv_heads, shape.batch, 4, o, stream);
    launch_blocks(plain_backward_kernel<false, M>, "attention_backward of queries, fp32",
                  shape.query_length, shape.heads, shape.batch, 4, o, stream);
  });
}

}  // namespace stepcast::runtime::cuda::kernels::internal
