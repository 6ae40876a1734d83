#include "runtime/cuda/kernels/interaction.h"

#include "runtime/cuda/kernels/internal/dot_block.cuh"
#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;
using internal::row_of_pair;

constexpr unsigned kThreads = 256;

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

// On tensor cores, 16-bit features: a sample a warp. Its features are the rows of a tile, padded
// with zeros to a multiple of 16, and so are its pairs, both ways round, in the backward.

constexpr int kTileWarps = 4;
constexpr int kChunk = 4;  // column tiles of 8 features whose sums are held at once

struct DotTile {
  int features = 0, dim = 0;
  Index samples = 0;

  [[nodiscard]] __host__ __device__ int padded() const { return (features + 15) / 16 * 16; }
  [[nodiscard]] __host__ __device__ int pairs() const { return features * (features - 1) / 2; }
  [[nodiscard]] __host__ __device__ int feature_elements() const {
    return padded() * internal::tile_pitch(dim);
  }
  [[nodiscard]] __host__ __device__ int pair_elements() const {
    return padded() * internal::tile_pitch(padded());
  }
  /// Bytes that one warp holds: features, then dots in fp32; in the backward matrices of pairs.
  [[nodiscard]] __host__ __device__ int bytes(bool backward) const {
    const int behind = backward ? 2 * pair_elements() : 4 * pairs();
    return (2 * feature_elements() + behind + 15) / 16 * 16;
  }
};

template <class T>
__device__ inline void load_tile(T* tile, const Operand& x, Index sample, const DotTile& of) {
  const int pieces = of.dim / 8;
  const T* const from = static_cast<const T*>(x.data) + sample * x.stride;
  for (int i = static_cast<int>(threadIdx.x) % 32; i < of.padded() * pieces; i += 32) {
    const int row = i / pieces;
    const int column = i % pieces * 8;
    const bool valid = row < of.features;
    internal::copy_async(tile + row * internal::tile_pitch(of.dim) + column,
                         from + (valid ? row * of.dim + column : 0), valid);
  }
  internal::copy_async_commit();
}

template <class T>
__global__ void __launch_bounds__(32 * kTileWarps)
    dot_forward_tile_kernel(DotTile of, Operand x, Operand out) {
  const Index sample = static_cast<Index>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (sample >= of.samples) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* const shared =
      internal::dynamic_shared<unsigned char>() + threadIdx.x / 32 * of.bytes(false);
  T* const tile = reinterpret_cast<T*>(shared);
  auto* const dots = reinterpret_cast<float*>(tile + of.feature_elements());
  load_tile(tile, x, sample, of);
  internal::copy_async_wait<0>();
  __syncwarp();
  const int pitch = internal::tile_pitch(of.dim);
  const internal::Place a_at = internal::ldmatrix_a(lane);
  const internal::Place b_at = internal::ldmatrix_b_two_steps(lane);
  for (int first = 0; first < of.padded(); first += 16) {
    for (int chunk = 0; chunk < first + 16; chunk += 8 * kChunk) {
      float sum[kChunk][4] = {};
      for (int k = 0; k < of.dim; k += 32) {
        unsigned a[2][4];
        const T* const row = tile + (first + a_at.row) * pitch + k + a_at.column;
        internal::ldmatrix(a[0], row);
        internal::ldmatrix(a[1], row + 16);
#pragma unroll
        for (int n = 0; n < kChunk; ++n) {
          const int column = chunk + 8 * n;
          if (column < first + 16) {  // of the lower triangle
            unsigned b[4];
            internal::ldmatrix(b, tile + (column + b_at.row) * pitch + k + b_at.column);
            internal::mma<T>(sum[n], a[0], b[0], b[1]);
            internal::mma<T>(sum[n], a[1], b[2], b[3]);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kChunk; ++n) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const internal::Place c = internal::mma_c(lane, r);
          const int i = first + c.row;
          const int j = chunk + 8 * n + c.column;
          if (i < of.features && j < i) {
            dots[i * (i - 1) / 2 + j] = sum[n][r];
          }
        }
      }
    }
  }
  __syncwarp();
  for (int p = lane; p < of.dim + of.pairs(); p += 32) {
    const float value = p < of.dim ? internal::to_float(tile[p]) : dots[p - of.dim];
    internal::store_one(out.data, out.format, sample * out.stride + p, value);
  }
}

/// dX = (D + D^T) X with D the gradients of the pairs, which are 16-bit as they come.
template <class T>
__global__ void __launch_bounds__(32 * kTileWarps)
    dot_backward_tile_kernel(DotTile of, Operand d_out, Operand x, Operand dx) {
  const Index sample = static_cast<Index>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (sample >= of.samples) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto* const shared =
      internal::dynamic_shared<unsigned char>() + threadIdx.x / 32 * of.bytes(true);
  T* const tile = reinterpret_cast<T*>(shared);
  T* const d_pairs = tile + of.feature_elements();
  load_tile(tile, x, sample, of);
  const int padded = of.padded();
  const int pair_pitch = internal::tile_pitch(padded);
  for (int i = lane * 8; i < of.pair_elements(); i += 32 * 8) {
    *reinterpret_cast<uint4*>(d_pairs + i) = uint4{0, 0, 0, 0};
  }
  __syncwarp();
  const T* const d = static_cast<const T*>(d_out.data) + sample * d_out.stride;
  for (int p = lane; p < of.pairs(); p += 32) {
    const int i = row_of_pair(p);
    const int j = p - i * (i - 1) / 2;
    d_pairs[i * pair_pitch + j] = d_pairs[j * pair_pitch + i] = d[of.dim + p];
  }
  internal::copy_async_wait<0>();
  __syncwarp();
  const internal::Place a_at = internal::ldmatrix_a(lane);
  const internal::Place b_at = internal::ldmatrix_b_trans(lane);
  T* const to = static_cast<T*>(dx.data) + sample * dx.stride;
  for (int first = 0; first < padded; first += 16) {
    for (int chunk = 0; chunk < of.dim; chunk += 8 * kChunk) {
      float sum[kChunk][4] = {};
      for (int k = 0; k < padded; k += 16) {
        unsigned a[4];
        internal::ldmatrix(a, d_pairs + (first + a_at.row) * pair_pitch + k + a_at.column);
#pragma unroll
        for (int n = 0; n < kChunk; n += 2) {
          unsigned b[4];
          internal::ldmatrix_trans(b, tile + (k + b_at.row) * internal::tile_pitch(of.dim) + chunk +
                                          8 * n + b_at.column);
          internal::mma<T>(sum[n], a, b[0], b[1]);
          internal::mma<T>(sum[n + 1], a, b[2], b[3]);
        }
      }
#pragma unroll
      for (int n = 0; n < kChunk; ++n) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const internal::Place c = internal::mma_c(lane, 2 * half);
          const int i = first + c.row;
          const int column = chunk + 8 * n + c.column;
          if (i < of.features) {
            float y[2] = {sum[n][2 * half], sum[n][2 * half + 1]};
            if (i == 0) {
              y[0] += internal::to_float(d[column]);
              y[1] += internal::to_float(d[column + 1]);
            }
            *reinterpret_cast<unsigned*>(to + i * of.dim + column) =
                internal::pack_two<T>(y[0], y[1]);
          }
        }
      }
    }
  }
}

/// Warps of a block on tensor cores; 0 where they do not take the shape or how it is stored.
int tile_warps(const DotTile& of, bool backward, const ConstMatrixView& x) {
  constexpr int kMostOfBlock = 96 * 1024;  // two blocks a multiprocessor
  if (element_bytes(x.format) != 2 || of.dim % 32 != 0 || !internal::packs(x, 8) ||
      of.bytes(backward) > kMostOfBlock) {
    return 0;
  }
  const int fit = kMostOfBlock / of.bytes(backward);
  return fit < kTileWarps ? fit : kTileWarps;
}

internal::Grid tile_grid(const DotTile& of, bool backward, int warps) {
  return {static_cast<unsigned>(internal::ceil_div(of.samples, warps)),
          static_cast<unsigned>(32 * warps), static_cast<std::size_t>(warps * of.bytes(backward))};
}

DotTile dot_tile(const DotInteraction& shape, Index samples) {
  return {static_cast<int>(shape.features), static_cast<int>(shape.dim), samples};
}

internal::DotBlock dot_block(const DotInteraction& shape) {
  return {static_cast<int>(shape.features), static_cast<int>(shape.dim)};
}

internal::Grid block_grid(const DotInteraction& shape, bool backward, Index samples) {
  return {static_cast<unsigned>(samples), internal::DotBlock::kThreads,
          static_cast<std::size_t>(dot_block(shape).floats(backward)) * sizeof(float)};
}

/// Whether dot_block.cuh takes the features.
bool fits_block(const DotInteraction& shape, bool backward, const ConstMatrixView& x) {
  return element_bytes(x.format) == 4 && shape.dim % 4 == 0 && internal::packs(x, 4) &&
         block_grid(shape, backward, 1).shared <= kMostShared;
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
  const DotTile tile = dot_tile(shape, x.rows);
  if (const int warps = tile_warps(tile, false, x); warps > 0) {
    internal::launch("dot_interaction_forward",
                     x.format == Format::kBf16 ? dot_forward_tile_kernel<__nv_bfloat16>
                                               : dot_forward_tile_kernel<__half>,
                     tile_grid(tile, false, warps), stream, tile, internal::operand(x),
                     internal::operand(out));
    return;
  }
  if (fits_block(shape, false, x)) {
    internal::launch("dot_interaction_forward", internal::dot_forward_block_kernel,
                     block_grid(shape, false, x.rows), stream, dot_block(shape),
                     internal::operand(x), internal::operand(out));
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
  const DotTile tile = dot_tile(shape, x.rows);
  const bool one_format = d_out.format == x.format && dx.format == x.format;
  if (const int warps = one_format && internal::packs(dx, 8) ? tile_warps(tile, true, x) : 0;
      warps > 0) {
    internal::launch("dot_interaction_backward",
                     x.format == Format::kBf16 ? dot_backward_tile_kernel<__nv_bfloat16>
                                               : dot_backward_tile_kernel<__half>,
                     tile_grid(tile, true, warps), stream, tile, internal::operand(d_out),
                     internal::operand(x), internal::operand(dx));
    return;
  }
  if (fits_block(shape, true, x) && fits_block(shape, true, dx)) {
    internal::launch("dot_interaction_backward", internal::dot_backward_block_kernel,
                     block_grid(shape, true, x.rows), stream, dot_block(shape),
                     internal::operand(d_out), internal::operand(x), internal::operand(dx));
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
