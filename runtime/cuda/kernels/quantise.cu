#include "runtime/cuda/kernels/quantise.h"

#include <cuda_fp8.h>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;
constexpr Index kSegment = 1024;  // elements of a row that a warp takes at once
constexpr int kTileRows = 128;    // of x, that become bytes of a row of the transpose
constexpr int kTileColumns = 64;
constexpr int kTilePitch = kTileColumns + 8;
constexpr int kSector = 32;  // bytes of the transpose that a thread stores
static_assert(kThreads == kTileColumns * kTileRows / kSector);

/// At the front of the workspace: what to multiply by before rounding, and after the product.
struct Scales {
  float down;
  alignas(16) float up;  // given to cuBLASLt
};
constexpr std::size_t kPartials = 256;  // where the blocks' maxima begin
static_assert(kPartials + kBlocks * sizeof(float) <= kQuantiseWorkspace);

float largest_of(Fp8 format) { return format == Fp8::kE4m3 ? 448.0F : 57344.0F; }

/// N numbers as N bytes, stored together.
template <int N>
__device__ inline void store_narrow(unsigned char* to, const float (&x)[N], float down,
                                    Fp8 format) {
  const __nv_fp8_interpretation_t kind = format == Fp8::kE4m3 ? __NV_E4M3 : __NV_E5M2;
  if constexpr (N == 1) {
    *to = __nv_cvt_float_to_fp8(down * x[0], __NV_SATFINITE, kind);
  } else {
    __nv_fp8x2_storage_t pairs[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      pairs[i] =
          __nv_cvt_float2_to_fp8x2({down * x[2 * i], down * x[2 * i + 1]}, __NV_SATFINITE, kind);
    }
    internal::Word<N> word;
    memcpy(&word, pairs, N);
    *reinterpret_cast<internal::Word<N>*>(to) = word;
  }
}

/// Calls visit(row, column, N values) for the packs of [rows, extent] that this lane has; what lies
/// beyond `columns` is zero. Warps take segments of a row; four loads are on their way at a time.
template <class T, int N, class Visit>
__device__ inline void for_each_pack(const internal::Operand& x, Index rows, Index columns,
                                     Index extent, Visit visit) {
  constexpr int kPacks = 4;
  constexpr int kStep = 32 * N;
  const Index segments = (extent + kSegment - 1) / kSegment;
  const Index warps = static_cast<Index>(gridDim.x) * (kThreads / 32);
  for (Index s = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / 32;
       s < rows * segments; s += warps) {
    const Index row = s / segments;
    const Index begin = s % segments * kSegment;
    const Index end = begin + kSegment < extent ? begin + kSegment : extent;
    const auto* const from = static_cast<const T*>(x.data) + row * x.stride;
    for (Index at = begin + static_cast<Index>(threadIdx.x % 32) * N; at < end;
         at += kPacks * kStep) {
      internal::Raw<T, N> raw[kPacks];
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        if (at + p * kStep < columns) {
          raw[p].load(from + at + p * kStep);
        }
      }
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        float values[N] = {};
        if (at + p * kStep < columns) {
          raw[p].to_floats(values);
        }
        if (at + p * kStep < end) {
          visit(row, at + p * kStep, values);
        }
      }
    }
  }
}

/// A block's largest magnitude. A NaN counts as infinity, so that it is seen.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    largest_kernel(internal::Operand x, Index rows, Index columns, float* partial) {
  __shared__ float shared[32];
  float largest = 0;
  for_each_pack<T, N>(x, rows, columns, columns, [&](Index, Index, const float(&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float value = fabsf(values[i]);
      largest = value <= largest ? largest : value == value ? value : INFINITY;
    }
  });
  largest = internal::block_reduce(largest, 0.0F, internal::Maximum{}, shared);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = largest;
  }
}

__global__ void __launch_bounds__(kThreads)
    scales_kernel(const float* partial, int blocks, float format_largest, Scales* scales) {
  __shared__ float shared[32];
  float largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kThreads) {
    largest = fmaxf(largest, partial[i]);
  }
  largest = internal::block_reduce(largest, 0.0F, internal::Maximum{}, shared);
  if (threadIdx.x == 0) {
    const bool usable = largest > 0 && largest < INFINITY;
    // Magnitudes so small that the factor would overflow become zeros.
    const float down = usable ? fminf(format_largest / largest, 1e37F) : 1.0F;
    scales->down = down;
    scales->up = largest < INFINITY ? 1.0F / down : NAN;
  }
}

/// Destination of bytes: `pitch` of them a row, zeros behind the values; nowhere without `data`.
struct Rows {
  unsigned char* data;
  Index pitch;
};

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(internal::Operand x, Index rows, Index columns, Fp8 format, const Scales* scales,
                Rows out) {
  const float down = scales->down;
  for_each_pack<T, N>(x, rows, columns, out.pitch,
                      [&](Index row, Index column, const float(&values)[N]) {
                        store_narrow(out.data + row * out.pitch + column, values, down, format);
                      });
}

/// A tile of x through shared memory: rows of `turned` are columns of x. On the way the same bytes
/// go to `plain`. `wide`: rows of `turned` take stores of 16 bytes.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    columns_kernel(internal::Operand x, Index rows, Index columns, Fp8 format, const Scales* scales,
                   Rows turned, Rows plain, bool wide) {
  __shared__ __align__(8) unsigned char tile[kTileRows][kTilePitch];
  const float down = scales->down;
  const Index first_column = static_cast<Index>(blockIdx.x) * kTileColumns;
  const Index tiles = (turned.pitch + kTileRows - 1) / kTileRows;
  for (Index t = blockIdx.y; t < tiles; t += gridDim.y) {
    const Index first_row = t * kTileRows;
    constexpr int kPacks = kTileColumns / N;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPacks; i += kThreads) {
      const Index row = first_row + i / kPacks;
      const Index column = first_column + i % kPacks * N;
      float values[N] = {};
      if (row < rows && column < columns) {
        internal::load_pack(static_cast<const T*>(x.data) + row * x.stride + column, values);
      }
      store_narrow(&tile[i / kPacks][i % kPacks * N], values, down, format);
      if (plain.data != nullptr && row < rows && column < plain.pitch) {
        store_narrow(plain.data + row * plain.pitch + column, values, down, format);
      }
    }
    __syncthreads();
    const int column = static_cast<int>(threadIdx.x) % kTileColumns;
    const int begin = static_cast<int>(threadIdx.x) / kTileColumns * kSector;
    if (first_column + column < columns) {
      unsigned char* const to =
          turned.data + (first_column + column) * turned.pitch + first_row + begin;
      const Index room = turned.pitch - first_row - begin;
#pragma unroll
      for (int half = 0; half < kSector; half += 16) {
        if (wide && half < room) {
          unsigned words[4];
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const int at = begin + half + 4 * w;
            words[w] = tile[at][column] | tile[at + 1][column] << 8 | tile[at + 2][column] << 16 |
                       static_cast<unsigned>(tile[at + 3][column]) << 24;
          }
          *reinterpret_cast<uint4*>(to + half) = {words[0], words[1], words[2], words[3]};
        } else {
          for (int i = half; i < half + 16 && i < room; ++i) {
            to[i] = tile[begin + i][column];
          }
        }
      }
    }
    __syncthreads();
  }
}

/// Blocks whose warps take a segment each, at most kBlocks.
unsigned blocks_for(Index rows, Index extent) {
  const Index wanted =
      internal::ceil_div(rows * internal::ceil_div(extent, kSegment), kThreads / 32);
  return static_cast<unsigned>(wanted < kBlocks ? wanted : kBlocks);
}

bool takes(const void* data, Index pitch, int bytes) {
  return data == nullptr ||
         (pitch % bytes == 0 && reinterpret_cast<std::uintptr_t>(data) % bytes == 0);
}

template <class T, int N>
void quantise_packs(const Quantise& q, Scales* scales, float* partial, cudaStream_t stream) {
  const internal::Operand x = internal::operand(q.x);
  const unsigned blocks = blocks_for(q.x.rows, q.x.columns);
  internal::launch("quantise: largest", largest_kernel<T, N>, {blocks, kThreads}, stream, x,
                   q.x.rows, q.x.columns, partial);
  internal::launch("quantise: scale", scales_kernel, {1, kThreads}, stream, partial,
                   static_cast<int>(blocks), largest_of(q.format), scales);
  const Rows plain{static_cast<unsigned char*>(q.rows.data), q.rows.pitch};
  const Rows turned{static_cast<unsigned char*>(q.columns.data), q.columns.pitch};
  if (turned.data == nullptr) {
    internal::launch("quantise: rows", rows_kernel<T, N>,
                     {blocks_for(q.x.rows, plain.pitch), kThreads}, stream, x, q.x.rows,
                     q.x.columns, q.format, scales, plain);
    return;
  }
  constexpr Index kMostY = 65535;
  const Index tiles = internal::ceil_div(turned.pitch, Index{kTileRows});
  const Index wide = plain.data != nullptr ? plain.pitch : q.x.columns;
  const dim3 grid(static_cast<unsigned>(internal::ceil_div(wide, Index{kTileColumns})),
                  static_cast<unsigned>(tiles < kMostY ? tiles : kMostY));
  internal::launch("quantise: columns", columns_kernel<T, N>, {grid, kThreads}, stream, x, q.x.rows,
                   q.x.columns, q.format, scales, turned, plain,
                   takes(turned.data, turned.pitch, 16));
}

}  // namespace

const float* quantise(const Quantise& q, Workspace workspace, cudaStream_t stream) {
  internal::require_workspace(workspace.bytes, kQuantiseWorkspace, "quantise");
  internal::require((q.rows.data == nullptr || q.rows.pitch >= q.x.columns) &&
                        (q.columns.data == nullptr || q.columns.pitch >= q.x.rows),
                    "a row of quantised values has room for all of them");
  if (q.x.rows == 0 || q.x.columns == 0) {
    return quantise_factor(workspace);
  }
  auto* scales = static_cast<Scales*>(workspace.data);
  auto* partial = reinterpret_cast<float*>(static_cast<char*>(workspace.data) + kPartials);
  internal::with_element(q.x.format, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kN = internal::kPack<T>;
    if (internal::packs(q.x, kN) && takes(q.rows.data, q.rows.pitch, kN)) {
      quantise_packs<T, kN>(q, scales, partial, stream);
    } else {
      quantise_packs<T, 1>(q, scales, partial, stream);
    }
  });
  return quantise_factor(workspace);
}

const float* quantise_factor(Workspace workspace) {
  return &static_cast<const Scales*>(workspace.data)->up;
}

}  // namespace stepcast::runtime::cuda::kernels
