#include "runtime/cuda/kernels/quantise.h"

#include <cuda_fp8.h>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;
constexpr int kTile = 32;
constexpr int kTileRows = 8;

/// At the front of the workspace: what to multiply by before rounding, and after the product.
struct Scales {
  float down;
  alignas(16) float up;  // given to cuBLASLt
};
constexpr std::size_t kPartials = 256;  // where the blocks' maxima begin
static_assert(kPartials + kBlocks * sizeof(float) <= kQuantiseWorkspace);

float largest_of(Fp8 format) { return format == Fp8::kE4m3 ? 448.0F : 57344.0F; }

__device__ inline unsigned char narrow(float x, Fp8 format) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, format == Fp8::kE4m3 ? __NV_E4M3 : __NV_E5M2);
}

/// A block's largest magnitude. A NaN counts as infinity, so that it is seen.
__global__ void __launch_bounds__(kThreads)
    largest_kernel(internal::Operand x, Index rows, Index columns, float* partial) {
  __shared__ float shared[32];
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  float largest = 0;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < rows * columns;
       i += step) {
    const float value =
        fabsf(internal::load_one(x.data, x.format, i / columns * x.stride + i % columns));
    largest = value <= largest ? largest : value == value ? value : INFINITY;
  }
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
    // Of magnitudes so small that the factor would overflow, nothing is left but zeros.
    const float down = usable ? fminf(format_largest / largest, 1e37F) : 1.0F;
    scales->down = down;
    scales->up = largest < INFINITY ? 1.0F / down : NAN;
  }
}

__global__ void __launch_bounds__(kThreads)
    rows_kernel(internal::Operand x, Index rows, Index columns, Fp8 format, const Scales* scales,
                unsigned char* out, Index pitch) {
  const float down = scales->down;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; i < rows * pitch;
       i += step) {
    const Index column = i % pitch;
    out[i] =
        column < columns
            ? narrow(down * internal::load_one(x.data, x.format, i / pitch * x.stride + column),
                     format)
            : 0;
  }
}

/// A tile of x through shared memory: rows of `out` are columns of x.
__global__ void __launch_bounds__(kTile* kTileRows)
    columns_kernel(internal::Operand x, Index rows, Index columns, Fp8 format, const Scales* scales,
                   unsigned char* out, Index pitch) {
  __shared__ unsigned char tile[kTile][kTile + 4];
  const float down = scales->down;
  const Index first_column = static_cast<Index>(blockIdx.x) * kTile;
  const Index tiles = (pitch + kTile - 1) / kTile;
  for (Index t = blockIdx.y; t < tiles; t += gridDim.y) {
    const Index column = first_column + threadIdx.x;
    for (Index i = threadIdx.y; i < kTile; i += kTileRows) {
      const Index row = t * kTile + i;
      const bool inside = row < rows && column < columns;
      tile[i][threadIdx.x] =
          inside
              ? narrow(down * internal::load_one(x.data, x.format, row * x.stride + column), format)
              : 0;
    }
    __syncthreads();
    const Index row = t * kTile + threadIdx.x;
    for (Index j = threadIdx.y; j < kTile; j += kTileRows) {
      if (first_column + j < columns && row < pitch) {
        out[(first_column + j) * pitch + row] = tile[threadIdx.x][j];
      }
    }
    __syncthreads();
  }
}

unsigned blocks_for(Index elements) {
  const Index wanted = internal::ceil_div(elements, kThreads);
  return static_cast<unsigned>(wanted < kBlocks ? wanted : kBlocks);
}

}  // namespace

const float* quantise(const Quantise& q, Workspace workspace, cudaStream_t stream) {
  internal::require_workspace(workspace.bytes, kQuantiseWorkspace, "quantise");
  auto* scales = static_cast<Scales*>(workspace.data);
  auto* partial = reinterpret_cast<float*>(static_cast<char*>(workspace.data) + kPartials);
  if (q.x.rows == 0 || q.x.columns == 0) {
    return quantise_factor(workspace);
  }
  const unsigned blocks = blocks_for(q.x.elements());
  internal::launch("quantise: largest", largest_kernel, {blocks, kThreads}, stream,
                   internal::operand(q.x), q.x.rows, q.x.columns, partial);
  internal::launch("quantise: scale", scales_kernel, {1, kThreads}, stream, partial,
                   static_cast<int>(blocks), largest_of(q.format), scales);
  return quantise_again(q, workspace, stream);
}

const float* quantise_again(const Quantise& q, Workspace workspace, cudaStream_t stream) {
  internal::require(q.pitch >= (q.transpose ? q.x.rows : q.x.columns),
                    "a row of quantised values has room for all of them");
  const auto* scales = static_cast<const Scales*>(workspace.data);
  auto* out = static_cast<unsigned char*>(q.out);
  const internal::Operand x = internal::operand(q.x);
  if (q.x.rows == 0 || q.x.columns == 0) {
    return quantise_factor(workspace);
  }
  if (!q.transpose) {
    internal::launch("quantise: rows", rows_kernel, {blocks_for(q.x.rows * q.pitch), kThreads},
                     stream, x, q.x.rows, q.x.columns, q.format, scales, out, q.pitch);
    return quantise_factor(workspace);
  }
  constexpr Index kMostY = 65535;
  const Index tiles = internal::ceil_div(q.pitch, Index{kTile});
  const dim3 grid(static_cast<unsigned>(internal::ceil_div(q.x.columns, Index{kTile})),
                  static_cast<unsigned>(tiles < kMostY ? tiles : kMostY));
  internal::launch("quantise: columns", columns_kernel, {grid, dim3(kTile, kTileRows)}, stream, x,
                   q.x.rows, q.x.columns, q.format, scales, out, q.pitch);
  return quantise_factor(workspace);
}

const float* quantise_factor(Workspace workspace) {
  return &static_cast<const Scales*>(workspace.data)->up;
}

}  // namespace stepcast::runtime::cuda::kernels
