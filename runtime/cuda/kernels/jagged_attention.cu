#include "runtime/cuda/kernels/jagged_attention.h"

#include <cmath>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

// fp32 arithmetic whatever the format: blocks of rows against blocks of the rows that they see.
namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Add;
using internal::ceil_div;
using internal::dynamic_shared;
using internal::launch;
using internal::load_one;
using internal::Maximum;
using internal::Operand;
using internal::operand;
using internal::store_one;
using internal::warp_reduce;

/// Half-open range of rows.
struct Span {
  Index begin;
  Index end;
};

/// Which rows of a sample a row sees: those of its own sequence.
struct SequenceMask {
  Index rows = 0;
  bool causal = true;
  const std::int32_t* begins = nullptr;
  const std::int32_t* ends = nullptr;

  [[nodiscard]] __device__ SequenceMask of_sample(Index sample) const {
    return {rows, causal, begins + sample * rows, ends + sample * rows};
  }
  [[nodiscard]] __device__ bool visible(Index query, Index key) const {
    return query < rows && key < rows && key >= begins[query] &&
           key < (causal ? query + 1 : ends[query]);
  }
  /// The keys that any of the `count` queries from `first` on sees.
  [[nodiscard]] __device__ Span keys_of(Index first, int count) const {
    const Index end = first + count < rows ? first + count : rows;
    return {begins[first], causal ? end : ends[end - 1]};
  }
  /// The queries that see any of the `count` keys from `first` on, from a multiple of `step`.
  [[nodiscard]] __device__ Span queries_of(Index first, int count, int step) const {
    const Index end = first + count < rows ? first + count : rows;
    const Index begin = causal ? first : begins[first];
    return {begin / step * step, ends[end - 1]};
  }
};

struct Operands {
  Operand q, k, v, out, d_out, d_q, d_k, d_v;
  float* log_sum_exp;
  const float* delta;
  SequenceMask mask;
  Index heads;
  Index group;  ///< query heads that share a key head
  int head_dim;
  float scale;
};

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

__global__ void __launch_bounds__(32 * kWarps) forward_kernel(Operands o) {
  const SequenceMask mask = o.mask.of_sample(blockIdx.z);
  auto* const shared = dynamic_shared<float>();
  const int pitch = o.head_dim | 1;
  float* const own = shared;
  float* const other_k = own + kOwn * pitch;
  float* const other_v = other_k + kOther * pitch;
  const Index head = blockIdx.y;
  const Index first = static_cast<Index>(blockIdx.x) * kOwn;
  const int warp_first = static_cast<int>(threadIdx.x) / 32 * kPerWarp;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  load_rows(own, pitch, o.q, mask.rows, head, first, kOwn, o.head_dim);
  float out[kPerWarp][kSlices] = {};
  float largest[kPerWarp];
  float total[kPerWarp] = {};
  for (float& m : largest) {
    m = -INFINITY;
  }
  const Span span = mask.keys_of(first, kOwn);
  for (Index first_key = span.begin; first_key < span.end; first_key += kOther) {
    __syncthreads();
    load_rows(other_k, pitch, o.k, mask.rows, head / o.group, first_key, kOther, o.head_dim);
    load_rows(other_v, pitch, o.v, mask.rows, head / o.group, first_key, kOther, o.head_dim);
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
    if (query < mask.rows) {
      store_row(o.out, mask.rows, head, query, o.head_dim, out[i],
                total[i] > 0 ? 1.0F / total[i] : 0.0F);
      if (lane == 0) {
        o.log_sum_exp[(blockIdx.z * o.heads + head) * mask.rows + query] =
            largest[i] + logf(total[i]);
      }
    }
  }
}

/// A block owns queries (dQ) or keys (dK, dV).
template <bool OwnsKeys>
__global__ void __launch_bounds__(32 * kWarps) backward_kernel(Operands o) {
  const SequenceMask mask = o.mask.of_sample(blockIdx.z);
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
  load_rows(own_x, pitch, OwnsKeys ? o.k : o.q, mask.rows, head, first_own, kOwn, o.head_dim);
  load_rows(own_y, pitch, OwnsKeys ? o.v : o.d_out, mask.rows, head, first_own, kOwn, o.head_dim);
  float d_x[kPerWarp][kSlices] = {};
  float d_y[kPerWarp][kSlices] = {};
  const Span span =
      OwnsKeys ? mask.queries_of(first_own, kOwn, kOther) : mask.keys_of(first_own, kOwn);
  for (Index member = 0; member < (OwnsKeys ? o.group : 1); ++member) {
    const Index query_head = OwnsKeys ? head * o.group + member : head;
    const Index other_head = OwnsKeys ? query_head : head / o.group;
    const Index statistics = (blockIdx.z * o.heads + query_head) * mask.rows;
    for (Index first = span.begin; first < span.end; first += kOther) {
      __syncthreads();
      load_rows(other_x, pitch, OwnsKeys ? o.q : o.k, mask.rows, other_head, first, kOther,
                o.head_dim);
      load_rows(other_y, pitch, OwnsKeys ? o.d_out : o.v, mask.rows, other_head, first, kOther,
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
    if (row < mask.rows) {
      store_row(OwnsKeys ? o.d_k : o.d_q, mask.rows, head, row, o.head_dim, d_x[i], o.scale);
      if (OwnsKeys) {
        store_row(o.d_v, mask.rows, head, row, o.head_dim, d_y[i], 1.0F);
      }
    }
  }
}

template <class Kernel>
void launch_blocks(Kernel kernel, const char* name, Index own_rows, Index heads, Index batch,
                   int tiles, const Operands& o, cudaStream_t stream) {
  static_assert(kOwn == kOther, "tiles of shared memory are of one size");
  const std::size_t shared =
      static_cast<std::size_t>(tiles * kOwn * (o.head_dim | 1)) * sizeof(float);
  const dim3 grid(static_cast<unsigned>(ceil_div(own_rows, kOwn)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batch));
  launch(name, kernel, {grid, 32 * kWarps, shared}, stream, o);
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
    sum += load_one(out.data, out.format, row * out.stride + column) *
           load_one(d_out.data, d_out.format, row * d_out.stride + column);
  }
  sum = warp_reduce(sum, Add{});
  if (threadIdx.x == 0) {
    delta[(row / length * heads + head) * length + row % length] = sum;
  }
}

constexpr Index kWidestHead = 256;
constexpr Index kMostSamples = 65535;  // blocks of a grid in z

void require_shape(const JaggedShape& s, const ConstMatrixView& q, const ConstMatrixView& k) {
  internal::require(s.kv_heads > 0 && s.heads % s.kv_heads == 0,
                    "query heads are a multiple of key heads");
  internal::require(q.rows == s.samples * s.rows && q.columns == s.heads * s.head_dim,
                    "queries are [samples * rows, heads * head_dim]");
  internal::require(k.rows == q.rows && k.columns == s.kv_heads * s.head_dim,
                    "keys are [samples * rows, kv_heads * head_dim]");
  internal::require(s.head_dim <= kWidestHead, "heads of up to 256 elements");
}

/// Calls f(samples, operands) for as many samples as a launch takes, until all are done.
template <class F>
void by_launch(const JaggedShape& s, const JaggedBackward& t, float* log_sum_exp,
               const float* delta, F f) {
  for (Index first = 0; first < s.samples; first += kMostSamples) {
    const Index samples = s.samples - first < kMostSamples ? s.samples - first : kMostSamples;
    const Index row = first * s.rows, rows = samples * s.rows;
    Operands o{};
    o.q = operand(t.q.slice(row, rows));
    o.k = operand(t.k.slice(row, rows));
    o.v = operand(t.v.slice(row, rows));
    o.out = operand(t.out.slice(row, rows));
    if (delta != nullptr) {
      o.d_out = operand(t.d_out.slice(row, rows));
      o.d_q = operand(t.d_q.slice(row, rows));
      o.d_k = operand(t.d_k.slice(row, rows));
      o.d_v = operand(t.d_v.slice(row, rows));
      o.delta = delta + row * s.heads;
    }
    o.log_sum_exp = log_sum_exp + row * s.heads;
    o.mask = {s.rows, s.causal, s.begins + row, s.ends + row};
    o.heads = s.heads;
    o.group = s.heads / s.kv_heads;
    o.head_dim = static_cast<int>(s.head_dim);
    o.scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim));
    f(samples, o);
  }
}

}  // namespace

void jagged_attention_forward(const JaggedShape& s, ConstMatrixView q, ConstMatrixView k,
                              ConstMatrixView v, MatrixView out, float* log_sum_exp,
                              cudaStream_t stream) {
  require_shape(s, q, k);
  if (q.rows == 0 || q.columns == 0) {
    return;
  }
  by_launch(s, {q, k, v, out}, log_sum_exp, nullptr, [&](Index samples, const Operands& o) {
    launch_blocks(forward_kernel, "jagged_attention_forward", s.rows, s.heads, samples, 3, o,
                  stream);
  });
}

std::size_t jagged_attention_backward_workspace(const JaggedShape& s) {
  return static_cast<std::size_t>(s.samples * s.heads * s.rows) * sizeof(float);
}

void jagged_attention_backward(const JaggedShape& s, const JaggedBackward& t, Workspace workspace,
                               cudaStream_t stream) {
  require_shape(s, t.q, t.k);
  if (t.q.rows == 0 || t.q.columns == 0) {
    return;
  }
  internal::require_workspace(workspace.bytes, jagged_attention_backward_workspace(s),
                              "jagged_attention_backward");
  auto* delta = static_cast<float*>(workspace.data);
  const auto blocks = static_cast<unsigned>(ceil_div(t.q.rows * s.heads, kRowWarps));
  launch("jagged_attention_backward: rowsum(dO * O)", delta_kernel, {blocks, dim3(32, kRowWarps)},
         stream, operand(t.out), operand(t.d_out), t.q.rows, s.rows, s.heads, s.head_dim, delta);
  // The backward only reads the log-sum-exp.
  by_launch(s, t, const_cast<float*>(t.log_sum_exp), delta, [&](Index samples, const Operands& o) {
    launch_blocks(backward_kernel<true>, "jagged_attention_backward of keys", s.rows, s.kv_heads,
                  samples, 4, o, stream);
    launch_blocks(backward_kernel<false>, "jagged_attention_backward of queries", s.rows, s.heads,
                  samples, 4, o, stream);
  });
}

}  // namespace stepcast::runtime::cuda::kernels
