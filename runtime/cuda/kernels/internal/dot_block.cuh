#pragma once
#include "runtime/cuda/kernels/interaction.h"
#include "runtime/cuda/kernels/internal/mma.cuh"

// Dots of fp32 features, 16 bytes at a time: a sample a block, its features one behind the other in
// shared memory. A thread makes 4 x 4 results at once, so that what it reads there serves four
// multiply-adds: thread by thread for itself would read two numbers for each.
namespace stepcast::runtime::cuda::kernels::internal {

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

struct DotBlock {
  static constexpr int kThreads = 256;
  static constexpr int kSide = 4;    ///< results of a thread, either way
  static constexpr int kSlices = 8;  ///< lanes that share a tile of dots, each some columns

  int features = 0, dim = 0;

  [[nodiscard]] __host__ __device__ int groups() const { return (features + kSide - 1) / kSide; }
  [[nodiscard]] __host__ __device__ int tiles() const { return groups() * (groups() + 1) / 2; }
  [[nodiscard]] __host__ __device__ int padded() const { return groups() * kSide; }
  [[nodiscard]] __host__ __device__ int pairs() const { return features * (features - 1) / 2; }
  /// In shared memory: features, padded with zeros; in the backward the matrix of pairs behind.
  [[nodiscard]] __host__ __device__ int floats(bool backward) const {
    return padded() * dim + (backward ? features * padded() : 0);
  }
};

__device__ inline void load_features(const DotBlock& of, const Operand& x, Index sample,
                                     float* shared) {
  const auto* const from = static_cast<const float*>(x.data) + sample * x.stride;
  for (int i = 4 * static_cast<int>(threadIdx.x); i < of.padded() * of.dim;
       i += 4 * DotBlock::kThreads) {
    const bool valid = i < of.features * of.dim;
    copy_async(shared + i, from + (valid ? i : 0), valid);
  }
  copy_async_commit();
}

/// Sums over the lanes that share a tile: each keeps half of what it has and gets the other lane's
/// half of it, `N` numbers.
template <int N>
__device__ inline void sum_halves(float (&v)[16], unsigned lanes, bool upper, int step) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const float give = upper ? v[i] : v[i + N / 2];
    const float keep = upper ? v[i + N / 2] : v[i];
    v[i] = keep + __shfl_xor_sync(lanes, give, step);
  }
}

static __global__ void __launch_bounds__(DotBlock::kThreads)
    dot_forward_block_kernel(DotBlock of, Operand x, Operand out) {
  constexpr int kSide = DotBlock::kSide, kSlices = DotBlock::kSlices;
  auto* const shared = dynamic_shared<float>();
  const Index sample = blockIdx.x;
  load_features(of, x, sample, shared);
  copy_async_wait<0>();
  __syncthreads();
  for (int p = static_cast<int>(threadIdx.x); p < of.dim; p += DotBlock::kThreads) {
    store_one(out.data, out.format, sample * out.stride + p, shared[p]);
  }
  const int slice = static_cast<int>(threadIdx.x) % kSlices;
  const unsigned lanes = 0xFFU << (threadIdx.x % 32 / kSlices * kSlices);
  for (int tile = static_cast<int>(threadIdx.x) / kSlices; tile < of.tiles();
       tile += DotBlock::kThreads / kSlices) {
    const int below = row_of_pair(tile);  // with its diagonal the triangle has a row less
    const int first_i = (below - 1) * kSide;
    const int first_j = (tile - below * (below - 1) / 2) * kSide;
    float sum[kSide * kSide] = {};
    for (int k = 4 * slice; k < of.dim; k += 4 * kSlices) {
      float4 a[kSide], b[kSide];
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
        a[r] = *reinterpret_cast<const float4*>(shared + (first_i + r) * of.dim + k);
        b[r] = *reinterpret_cast<const float4*>(shared + (first_j + r) * of.dim + k);
      }
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
#pragma unroll
        for (int s = 0; s < kSide; ++s) {
          float& value = sum[r * kSide + s];
          value += a[r].x * b[s].x;
          value += a[r].y * b[s].y;
          value += a[r].z * b[s].z;
          value += a[r].w * b[s].w;
        }
      }
    }
    sum_halves<16>(sum, lanes, (slice & 4) != 0, 4);
    sum_halves<8>(sum, lanes, (slice & 2) != 0, 2);
    sum_halves<4>(sum, lanes, (slice & 1) != 0, 1);
#pragma unroll
    for (int n = 0; n < 2; ++n) {  // which two of the tile have come together in this lane
      const int at = 2 * slice + n;
      const int i = first_i + at / kSide;
      const int j = first_j + at % kSide;
      if (i < of.features && j < i) {
        store_one(out.data, out.format, sample * out.stride + of.dim + i * (i - 1) / 2 + j, sum[n]);
      }
    }
  }
}

/// dX = (D + D^T) X with D the gradients of the pairs.
static __global__ void __launch_bounds__(DotBlock::kThreads)
    dot_backward_block_kernel(DotBlock of, Operand d_out, Operand x, Operand dx) {
  constexpr int kSide = DotBlock::kSide;
  auto* const shared = dynamic_shared<float>();
  float* const d_pairs = shared + of.padded() * of.dim;
  const Index sample = blockIdx.x;
  load_features(of, x, sample, shared);
  for (int p = static_cast<int>(threadIdx.x); p < of.pairs(); p += DotBlock::kThreads) {
    const int i = row_of_pair(p);
    const int j = p - i * (i - 1) / 2;
    const float d = load_one(d_out.data, d_out.format, sample * d_out.stride + of.dim + p);
    d_pairs[i * of.padded() + j] = d_pairs[j * of.padded() + i] = d;
  }
  for (int j = static_cast<int>(threadIdx.x); j < of.features; j += DotBlock::kThreads) {
    d_pairs[j * of.padded() + j] = 0;
    for (int i = of.features; i < of.padded(); ++i) {
      d_pairs[j * of.padded() + i] = 0;
    }
  }
  copy_async_wait<0>();
  __syncthreads();
  const int pieces = of.dim / 4;
  float* const to = static_cast<float*>(dx.data) + sample * dx.stride;
  for (int item = static_cast<int>(threadIdx.x); item < of.groups() * pieces;
       item += DotBlock::kThreads) {
    const int first = item / pieces * kSide;
    const int column = item % pieces * 4;
    float4 sum[kSide] = {};
    if (first == 0) {
      const Index at = sample * d_out.stride + column;
      sum[0] = {load_one(d_out.data, d_out.format, at), load_one(d_out.data, d_out.format, at + 1),
                load_one(d_out.data, d_out.format, at + 2),
                load_one(d_out.data, d_out.format, at + 3)};
    }
    for (int j = 0; j < of.features; ++j) {
      const float4 y = *reinterpret_cast<const float4*>(shared + j * of.dim + column);
      const float4 d = *reinterpret_cast<const float4*>(d_pairs + j * of.padded() + first);
      const float of_row[kSide] = {d.x, d.y, d.z, d.w};
#pragma unroll
      for (int r = 0; r < kSide; ++r) {
        sum[r].x += of_row[r] * y.x;
        sum[r].y += of_row[r] * y.y;
        sum[r].z += of_row[r] * y.z;
        sum[r].w += of_row[r] * y.w;
      }
    }
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      if (first + r < of.features) {
        *reinterpret_cast<float4*>(to + (first + r) * of.dim + column) = sum[r];
      }
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::internal
