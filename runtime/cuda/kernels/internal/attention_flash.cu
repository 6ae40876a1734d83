#include "runtime/cuda/kernels/internal/attention_launch.h"
#include "runtime/cuda/kernels/internal/attention_tile.h"
#include "runtime/cuda/kernels/internal/mma.cuh"

namespace stepcast::runtime::cuda::kernels::internal {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kOwn = 16 * kWarps;  // rows a block owns: 16 a warp
constexpr int kOther = 32;         // rows of the other side at a time, in the backward
constexpr float kLog2E = 1.4426950408889634F;
constexpr float kLn2 = 0.6931471805599453F;

/// One head of one sequence: `rows` rows of D elements.
template <class T>
struct Rows {
  const T* data;
  Index stride;
  Index rows;
};

/// `Count` rows of D elements from row `first` on into a tile of shared memory; rows beyond the
/// matrix become zeros.
template <class T, int D, int Count>
__device__ inline void load_tile(T* tile, const Rows<T>& from, Index first) {
  constexpr int kPieces = D / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Count * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int piece = i % kPieces;
    const bool valid = first + row < from.rows;
    const T* source = from.data + (valid ? first + row : 0) * from.stride + piece * 8;
    copy_async(tile + row * tile_pitch(D) + piece * 8, source, valid);
  }
}

/// The A fragment of rows [first, first + 16), k step `step`.
template <class T, int D>
__device__ inline void load_a(unsigned (&a)[4], const T* tile, int first, int step) {
  const Place p = ldmatrix_a(static_cast<int>(threadIdx.x) % 32);
  ldmatrix(a, tile + (first + p.row) * tile_pitch(D) + step * 16 + p.column);
}

/// c[n] += A (16 rows of `own`) times the transpose of `Count` rows of `other`: [16, Count] in
/// tiles of 8 columns.
template <class T, int D, int Count>
__device__ inline void multiply_transposed(float (&c)[Count / 8][4], const T* own, int first,
                                           const T* other) {
  const Place p = ldmatrix_b_two_steps(static_cast<int>(threadIdx.x) % 32);
#pragma unroll
  for (int step = 0; step < D / 16; step += 2) {
    unsigned a[2][4];
    load_a<T, D>(a[0], own, first, step);
    load_a<T, D>(a[1], own, first, step + 1);
#pragma unroll
    for (int n = 0; n < Count / 8; ++n) {
      unsigned b[4];
      ldmatrix(b, other + (n * 8 + p.row) * tile_pitch(D) + step * 16 + p.column);
      mma<T>(c[n], a[0], b[0], b[1]);
      mma<T>(c[n], a[1], b[2], b[3]);
    }
  }
}

/// sum[n] += P (16 x Count, from the layout of sums, rounded to T) times `Count` rows of `other`:
/// [16, D].
template <class T, int D, int Count>
__device__ inline void multiply_rounded(float (&sum)[D / 8][4], const float (&p)[Count / 8][4],
                                        const T* other) {
  const Place at = ldmatrix_b_trans(static_cast<int>(threadIdx.x) % 32);
#pragma unroll
  for (int step = 0; step < Count / 16; ++step) {
    unsigned a[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const FromSums from = a_from_c(r);
      a[r] =
          pack_two<T>(p[2 * step + from.tile][from.first], p[2 * step + from.tile][from.first + 1]);
    }
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      unsigned b[4];
      ldmatrix_trans(b, other + (step * 16 + at.row) * tile_pitch(D) + n * 8 + at.column);
      mma<T>(sum[n], a, b[0], b[1]);
      mma<T>(sum[n + 1], a, b[2], b[3]);
    }
  }
}

/// The four lanes that share a row of C.
template <class Combine>
__device__ inline float quad_reduce(float x, Combine combine) {
  x = combine(x, __shfl_xor_sync(0xFFFFFFFFU, x, 1));
  return combine(x, __shfl_xor_sync(0xFFFFFFFFU, x, 2));
}

/// Rows [first, first + 16) of C to a matrix of `rows` rows, each row times factor[its half].
template <class T, int D>
__device__ inline void store_rows(const float (&c)[D / 8][4], T* to, Index stride, Index first,
                                  Index rows, const float (&factor)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Place p = mma_c(lane, 2 * half);
      if (first + p.row < rows) {
        *reinterpret_cast<unsigned*>(to + (first + p.row) * stride + n * 8 + p.column) =
            pack_two<T>(factor[half] * c[n][2 * half], factor[half] * c[n][2 * half + 1]);
      }
    }
  }
}

template <class T>
__device__ inline Rows<T> head_of(const Operand& m, Index length, Index head, int head_dim) {
  return {static_cast<const T*>(m.data) + blockIdx.z * length * m.stride + head * head_dim,
          m.stride, length};
}
template <class T>
__device__ inline T* head_to(const Operand& m, Index length, Index head, int head_dim) {
  return static_cast<T*>(m.data) + blockIdx.z * length * m.stride + head * head_dim;
}

/// One block: 64 queries of one head (blockIdx.y) of one sequence (blockIdx.z) against all their
/// keys, a tile at a time; the next tile is on its way while one is used.
template <class T, int D, class M>
__global__ void __launch_bounds__(kThreads) forward_kernel(AttentionOperands<M> o) {
  constexpr int kKeys = 64;
  constexpr int kTile = kKeys * tile_pitch(D);
  const M mask = o.mask.of_sample(blockIdx.z);
  auto* const shared = dynamic_shared<unsigned char>();
  T* const queries = reinterpret_cast<T*>(shared);
  T* const keys = queries + kOwn * tile_pitch(D);  // two stages of keys, then two of values
  T* const values = keys + 2 * kTile;

  const Index head = blockIdx.y;
  const Index first_query = static_cast<Index>(gridDim.x - 1 - blockIdx.x) * kOwn;  // longest first
  const int warp_first = static_cast<int>(threadIdx.x) / 32 * 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Rows<T> q = head_of<T>(o.q, mask.queries, head, D);
  const Rows<T> k = head_of<T>(o.k, mask.keys, head / o.group, D);
  const Rows<T> v = head_of<T>(o.v, mask.keys, head / o.group, D);
  const Span span = keys_of(mask, first_query, kOwn);

  load_tile<T, D, kOwn>(queries, q, first_query);
  load_tile<T, D, kKeys>(keys, k, span.begin);
  load_tile<T, D, kKeys>(values, v, span.begin);
  copy_async_commit();

  float out[D / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY};  // of rows lane / 4 and lane / 4 + 8, in powers of two
  float total[2] = {};                        // this lane's share
  const float scale = o.scale * kLog2E;
  int stage = 0;
  for (Index first_key = span.begin; first_key < span.end; first_key += kKeys, stage ^= 1) {
    if (first_key + kKeys < span.end) {
      load_tile<T, D, kKeys>(keys + (stage ^ 1) * kTile, k, first_key + kKeys);
      load_tile<T, D, kKeys>(values + (stage ^ 1) * kTile, v, first_key + kKeys);
    }
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();

    float score[kKeys / 8][4] = {};
    multiply_transposed<T, D, kKeys>(score, queries, warp_first, keys + stage * kTile);
    const Index own = first_query + warp_first;
    const bool whole = mask.all_visible(own, 16, first_key, kKeys);
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Place p = mma_c(lane, r);
        const bool seen = whole || mask.visible(own + p.row, first_key + n * 8 + p.column);
        score[n][r] = seen ? score[n][r] * scale : -INFINITY;
        top[r / 2] = fmaxf(top[r / 2], score[n][r]);
      }
    }
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = quad_reduce(top[half], [](float a, float b) { return fmaxf(a, b); });
      const float base = top[half] == -INFINITY ? 0.0F : top[half];  // a row that sees no key yet
      shrink[half] = exp2f(largest[half] - base);
      largest[half] = top[half];
      top[half] = base;
      total[half] *= shrink[half];
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        score[n][r] = exp2f(score[n][r] - top[r / 2]);
        total[r / 2] += score[n][r];
      }
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        out[n][r] *= shrink[r / 2];
      }
    }
    multiply_rounded<T, D, kKeys>(out, score, values + stage * kTile);
    __syncthreads();  // the next turn overwrites the other stage, the one after it this one
  }

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] = quad_reduce(total[half], [](float a, float b) { return a + b; });
    factor[half] = total[half] > 0 ? 1.0F / total[half] : 0.0F;
    const Index query = first_query + warp_first + mma_c(lane, 2 * half).row;
    if (lane % 4 == 0 && query < mask.queries) {
      o.log_sum_exp[(blockIdx.z * o.heads + head) * mask.queries + query] =
          (largest[half] + log2f(total[half])) * kLn2;
    }
  }
  store_rows<T, D>(out, head_to<T>(o.out, mask.queries, head, D), o.out.stride,
                   first_query + warp_first, mask.queries, factor);
}

/// One query of a head; zeros beyond the last.
struct alignas(8) QueryStatistics {
  float log_sum_exp;  ///< in powers of two
  float delta;
};
template <class M>
__device__ inline QueryStatistics statistics_of(const AttentionOperands<M>& o, Index queries,
                                                Index head, Index query) {
  if (query >= queries) {
    return {0, 0};
  }
  const Index at = (blockIdx.z * o.heads + head) * queries + query;
  return {o.log_sum_exp[at] * kLog2E, o.delta[at]};
}

/// One block owns 64 rows and walks the rows of the other side. Queries own (OwnsKeys false):
/// scores [16 queries, other keys] of a warp, dQ += dS K. Keys own: the transposed scores, dV +=
/// P^T dO, dK += dS^T Q, over all query heads of the key head (blockIdx.y). A lane keeps the
/// statistics of its two queries, or they come with each tile of queries.
template <class T, int D, bool OwnsKeys, class M>
__global__ void __launch_bounds__(kThreads) backward_kernel(AttentionOperands<M> o) {
  constexpr int kTile = kOther * tile_pitch(D);
  const M mask = o.mask.of_sample(blockIdx.z);
  auto* const shared = dynamic_shared<unsigned char>();
  T* const own_x = reinterpret_cast<T*>(shared);    // Q, or K
  T* const own_y = own_x + kOwn * tile_pitch(D);    // dO, or V
  T* const other_x = own_y + kOwn * tile_pitch(D);  // two stages of K, or Q
  T* const other_y = other_x + 2 * kTile;           // two stages of V, or dO
  auto* const of_tile = reinterpret_cast<QueryStatistics*>(other_y + 2 * kTile);  // two stages

  const Index head = blockIdx.y;
  const Index own_block = OwnsKeys ? blockIdx.x : gridDim.x - 1 - blockIdx.x;  // longest first
  const Index first_own = own_block * kOwn;
  const int warp_first = static_cast<int>(threadIdx.x) / 32 * 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Index queries = mask.queries;
  const Index keys = mask.keys;
  const Index group = OwnsKeys ? o.group : 1;
  const Index kv_head = OwnsKeys ? head : head / o.group;
  const Span span =
      OwnsKeys ? queries_of(mask, first_own, kOwn, kOther) : keys_of(mask, first_own, kOwn);
  const Index tiles = span.end > span.begin ? (span.end - span.begin + kOther - 1) / kOther : 0;
  const float scale = o.scale * kLog2E;

  const auto query_rows = [&](const Operand& m, Index h) { return head_of<T>(m, queries, h, D); };
  const auto key_rows = [&](const Operand& m) { return head_of<T>(m, keys, kv_head, D); };
  const auto other_of = [&](Index step) { return span.begin + step % tiles * kOther; };
  const auto query_head_of = [&](Index step) {
    return OwnsKeys ? head * o.group + step / tiles : head;
  };
  const auto load_other = [&](int stage, Index step) {
    const Index first = other_of(step);
    const Index query_head = query_head_of(step);
    load_tile<T, D, kOther>(other_x + stage * kTile,
                            OwnsKeys ? query_rows(o.q, query_head) : key_rows(o.k), first);
    load_tile<T, D, kOther>(other_y + stage * kTile,
                            OwnsKeys ? query_rows(o.d_out, query_head) : key_rows(o.v), first);
  };

  float d_x[D / 8][4] = {};                 // dQ, or dK
  float d_y[OwnsKeys ? D / 8 : 1][4] = {};  // dV
  const Index steps = tiles * group;
  if (steps > 0) {
    load_tile<T, D, kOwn>(own_x, OwnsKeys ? key_rows(o.k) : query_rows(o.q, head), first_own);
    load_tile<T, D, kOwn>(own_y, OwnsKeys ? key_rows(o.v) : query_rows(o.d_out, head), first_own);
    load_other(0, 0);
    copy_async_commit();
  }
  QueryStatistics mine[2] = {};
  QueryStatistics next{};  // of one query of the next tile
  const bool brings = OwnsKeys && threadIdx.x < kOther;
  if constexpr (OwnsKeys) {
    if (brings && steps > 0) {
      of_tile[threadIdx.x] = statistics_of(o, queries, query_head_of(0), other_of(0) + threadIdx.x);
    }
  } else {
    for (int half = 0; half < 2; ++half) {
      mine[half] =
          statistics_of(o, queries, head, first_own + warp_first + mma_c(lane, 2 * half).row);
    }
  }
  int stage = 0;
  for (Index step = 0; step < steps; ++step, stage ^= 1) {
    if (step + 1 < steps) {
      load_other(stage ^ 1, step + 1);
      if (brings) {
        next = statistics_of(o, queries, query_head_of(step + 1), other_of(step + 1) + threadIdx.x);
      }
    }
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();

    float p[kOther / 8][4] = {};
    float ds[kOther / 8][4] = {};
    multiply_transposed<T, D, kOther>(p, own_x, warp_first, other_x + stage * kTile);
    multiply_transposed<T, D, kOther>(ds, own_y, warp_first, other_y + stage * kTile);
    const Index first_other = other_of(step);
    const Index own_rows = first_own + warp_first;
    const bool whole = OwnsKeys ? mask.all_visible(first_other, kOther, own_rows, 16)
                                : mask.all_visible(own_rows, 16, first_other, kOther);
#pragma unroll
    for (int n = 0; n < kOther / 8; ++n) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Place at = mma_c(lane, r);
        const Index own = own_rows + at.row;
        const Index other = first_other + n * 8 + at.column;
        const bool seen = whole || (OwnsKeys ? mask.visible(other, own) : mask.visible(own, other));
        const QueryStatistics of =
            OwnsKeys ? of_tile[stage * kOther + n * 8 + at.column] : mine[r / 2];
        p[n][r] = seen ? exp2f(p[n][r] * scale - of.log_sum_exp) : 0.0F;
        ds[n][r] = seen ? p[n][r] * (ds[n][r] - of.delta) : 0.0F;
      }
    }
    multiply_rounded<T, D, kOther>(d_x, ds, other_x + stage * kTile);
    if constexpr (OwnsKeys) {
      multiply_rounded<T, D, kOther>(d_y, p, other_y + stage * kTile);
    }
    if (brings) {
      of_tile[(stage ^ 1) * kOther + threadIdx.x] = next;
    }
    __syncthreads();
  }

  const float scales[2] = {o.scale, o.scale};
  const Index rows = OwnsKeys ? keys : queries;
  const Operand& to = OwnsKeys ? o.d_k : o.d_q;
  store_rows<T, D>(d_x, head_to<T>(to, rows, head, D), to.stride, first_own + warp_first, rows,
                   scales);
  if constexpr (OwnsKeys) {
    const float ones[2] = {1.0F, 1.0F};
    store_rows<T, D>(d_y, head_to<T>(o.d_v, rows, head, D), o.d_v.stride, first_own + warp_first,
                     rows, ones);
  }
}

template <class Kernel, class M>
void launch_blocks(Kernel kernel, const char* name, Index own_rows, Index heads, Index batch,
                   int shared_rows, std::size_t more_shared, const AttentionOperands<M>& o,
                   cudaStream_t stream) {
  const std::size_t shared =
      static_cast<std::size_t>(shared_rows * tile_pitch(o.head_dim)) * 2 + more_shared;
  const dim3 grid(static_cast<unsigned>(ceil_div(own_rows, kOwn)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(batch));
  launch(name, kernel, {grid, kThreads, shared}, stream, o);
}

/// Calls visit(Type<T>, constant head_dim).
template <class Visit>
void with_kernel(Format format, Index head_dim, Visit visit) {
  const auto by_format = [&](auto dim) {
    if (format == Format::kBf16) {
      visit(Type<__nv_bfloat16>{}, dim);
    } else {
      visit(Type<__half>{}, dim);
    }
  };
  if (head_dim == 64) {
    by_format(std::integral_constant<int, 64>{});
  } else {
    by_format(std::integral_constant<int, 128>{});
  }
}

}  // namespace

void flash_forward(const AttentionShape& shape, const ConstMatrixView& q, const ConstMatrixView& k,
                   const ConstMatrixView& v, const MatrixView& out, float* log_sum_exp,
                   cudaStream_t stream) {
  with_mask(shape, [&](const auto& mask) {
    const auto o = forward_operands(shape, mask, q, k, v, out, log_sum_exp);
    with_kernel(q.format, shape.head_dim, [&](auto type, auto dim) {
      using T = typename decltype(type)::type;
      constexpr int kDim = decltype(dim)::value;
      launch_blocks(forward_kernel<T, kDim, std::decay_t<decltype(mask)>>, "attention_forward",
                    shape.query_length, shape.heads, shape.batch, kOwn + 4 * 64, 0, o, stream);
    });
  });
}

void flash_backward(const AttentionShape& shape, const AttentionBackward& tensors,
                    const float* delta, cudaStream_t stream) {
  with_mask(shape, [&](const auto& mask) {
    using M = std::decay_t<decltype(mask)>;
    const auto o = backward_operands(shape, mask, tensors, delta);
    with_kernel(tensors.q.format, shape.head_dim, [&](auto type, auto dim) {
      using T = typename decltype(type)::type;
      constexpr int kDim = decltype(dim)::value;
      constexpr int kSharedRows = 2 * kOwn + 4 * kOther;
      launch_blocks(backward_kernel<T, kDim, true, M>, "attention_backward of keys",
                    shape.kv_length, shape.kv_heads, shape.batch, kSharedRows,
                    2 * kOther * sizeof(QueryStatistics), o, stream);
      launch_blocks(backward_kernel<T, kDim, false, M>, "attention_backward of queries",
                    shape.query_length, shape.heads, shape.batch, kSharedRows, 0, o, stream);
    });
  });
}

}  // namespace stepcast::runtime::cuda::kernels::internal
