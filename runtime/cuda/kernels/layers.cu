#include "runtime/cuda/kernels/layers.h"

#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::map;
using internal::Operand;
using internal::operand;

constexpr int kTile = 32;
constexpr int kTileRows = 8;
constexpr int kThreads = 256;

/// A tile of one matrix in shared memory: both sides are walked along their rows.
template <class Word>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_tiles_kernel(Transpose shape, const Word* x, Word* out) {
  __shared__ Word tile[kTile][kTile + 1];
  const Index first_column = static_cast<Index>(blockIdx.x) * kTile;
  const Index first_row = static_cast<Index>(blockIdx.y) * kTile;
  const Index matrix = shape.rows * shape.columns;
  for (Index m = blockIdx.z; m < shape.matrices; m += gridDim.z) {
    const Index column = first_column + threadIdx.x;
    for (Index i = threadIdx.y; i < kTile; i += kTileRows) {
      if (first_row + i < shape.rows && column < shape.columns) {
        tile[i][threadIdx.x] = x[m * matrix + (first_row + i) * shape.columns + column];
      }
    }
    __syncthreads();
    const Index row = first_row + threadIdx.x;
    for (Index j = threadIdx.y; j < kTile; j += kTileRows) {
      if (first_column + j < shape.columns && row < shape.rows) {
        out[m * matrix + (first_column + j) * shape.rows + row] = tile[threadIdx.x][j];
      }
    }
    __syncthreads();
  }
}

/// One element of the output a thread: small matrices, which the cache holds, and vectors.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(Transpose shape, const Word* x, Word* out) {
  const Index matrix = shape.rows * shape.columns;
  const Index all = shape.matrices * matrix * shape.inner;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; at < all; at += step) {
    const Index vector = at / shape.inner;
    const Index m = vector / matrix;
    const Index column = vector % matrix / shape.rows;
    const Index row = vector % shape.rows;
    out[at] = x[(m * matrix + row * shape.columns + column) * shape.inner + at % shape.inner];
  }
}

template <class Word>
void launch_transpose(const Transpose& shape, const void* x, void* out, cudaStream_t stream) {
  const auto* from = static_cast<const Word*>(x);
  auto* to = static_cast<Word*>(out);
  constexpr Index kLayers = 65535;  // the y and z dimensions of a grid
  if (shape.inner == 1 && shape.rows >= kTile / 2 && shape.columns >= kTile / 2 &&
      shape.rows <= kLayers * kTile) {
    const dim3 blocks(static_cast<unsigned>(internal::ceil_div(shape.columns, kTile)),
                      static_cast<unsigned>(internal::ceil_div(shape.rows, kTile)),
                      static_cast<unsigned>(shape.matrices < kLayers ? shape.matrices : kLayers));
    internal::launch("transpose", transpose_tiles_kernel<Word>, {blocks, dim3(kTile, kTileRows)},
                     stream, shape, from, to);
    return;
  }
  constexpr Index kBlocks = 65536;
  const Index wanted = internal::ceil_div(shape.matrices * shape.rows * shape.columns * shape.inner,
                                          Index{kThreads});
  internal::launch("transpose", transpose_kernel<Word>,
                   {static_cast<unsigned>(wanted < kBlocks ? wanted : kBlocks), kThreads}, stream,
                   shape, from, to);
}

struct Product {
  template <int N>
  __device__ void operator()(Index, Index, float (&x)[2][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] * x[1][i];
    }
  }
};

/// Inputs dy, a, b.
struct ProductBackward {
  template <int N>
  __device__ void operator()(Index, Index, float (&x)[3][N], float (&y)[2][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] * x[2][i];
      y[1][i] = x[0][i] * x[1][i];
    }
  }
};

/// N columns of the row of `m` that belongs to a group of rows.
template <int N>
__device__ inline void load_of_group(const Operand& m, Index row, Index group, Index column,
                                     float (&x)[N]) {
  for (int i = 0; i < N; ++i) {
    x[i] = internal::load_one(m.data, m.format, row / group * m.stride + column + i);
  }
}

/// y = factor * the row of the group.
struct Repeat {
  Operand row_of;
  Index group;
  template <int Inputs, int N>
  __device__ void operator()(Index row, Index column, float (&)[Inputs][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    float x[N];
    load_of_group(row_of, row, group, column, x);
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[i] / static_cast<float>(group);
    }
  }
};

/// Means over the rows of a group.
struct GroupMean {
  Operand x;
  Index group;
  template <int Inputs, int N>
  __device__ void operator()(Index row, Index column, float (&)[Inputs][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      float sum = 0;
      for (Index r = row * group; r < (row + 1) * group; ++r) {
        sum += internal::load_one(x.data, x.format, r * x.stride + column + i);
      }
      y[0][i] = sum / static_cast<float>(group);
    }
  }
};

struct Modulate {
  Operand shift, scale;
  Index group;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&x)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    float factor[N];
    float more[N];
    load_of_group(scale, row, group, column, factor);
    load_of_group(shift, row, group, column, more);
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] * (1.0F + factor[i]) + more[i];
    }
  }
};

/// y = x * (base + the factor of the row's group).
struct ScaleByGroup {
  Operand factors;
  Index group;
  float base;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&x)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    float factor[N];
    load_of_group(factors, row, group, column, factor);
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] * (base + factor[i]);
    }
  }
};

/// Inputs x, branch.
struct Gate {
  Operand gate;
  Index group;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&x)[2][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    float factor[N];
    load_of_group(gate, row, group, column, factor);
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] + factor[i] * x[1][i];
    }
  }
};

/// y[0] = was[0] + sum over the group of a * b, or of a where there is no b.
struct GroupSum {
  Operand a, b;
  Index group;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&was)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      float sum = 0;
      for (Index r = row * group; r < (row + 1) * group; ++r) {
        const Index j = column + i;
        const float x = internal::load_one(a.data, a.format, r * a.stride + j);
        sum += b.data == nullptr ? x : x * internal::load_one(b.data, b.format, r * b.stride + j);
      }
      y[0][i] = was[0][i] + sum;
    }
  }
};

void add_group_sums(ConstMatrixView a, ConstMatrixView b, Index group, MatrixView to,
                    const char* name, cudaStream_t stream) {
  map(std::array<ConstMatrixView, 1>{to}, std::array{to}, GroupSum{operand(a), operand(b), group},
      {name}, stream);
}

/// A matrix with one row for each `group` rows of x.
void require_groups(const ConstMatrixView& x, Index group, const ConstMatrixView& of_groups) {
  internal::require(group > 0 && of_groups.rows * group == x.rows && of_groups.columns == x.columns,
                    "a matrix has one row for each group of rows");
}

}  // namespace

void transpose(const Transpose& shape, const void* x, Format format, void* out,
               cudaStream_t stream) {
  if (shape.matrices * shape.rows * shape.columns * shape.inner == 0) {
    return;
  }
  if (element_bytes(format) == 2) {
    launch_transpose<unsigned short>(shape, x, out, stream);
  } else {
    internal::require(element_bytes(format) == 4, "a device matrix is fp32, tf32, bf16 or fp16");
    launch_transpose<unsigned>(shape, x, out, stream);
  }
}

void multiply_forward(ConstMatrixView a, ConstMatrixView b, MatrixView out, cudaStream_t stream) {
  map(std::array{a, b}, std::array{out}, Product{}, {"multiply_forward", true}, stream);
}

void multiply_backward(ConstMatrixView dy, ConstMatrixView a, ConstMatrixView b, MatrixView da,
                       MatrixView db, cudaStream_t stream) {
  map(std::array{dy, a, b}, std::array{da, db}, ProductBackward{}, {"multiply_backward", true},
      stream);
}

void mean_rows_forward(ConstMatrixView x, Index group, MatrixView out, cudaStream_t stream) {
  require_groups(x, group, out);
  map(std::array<ConstMatrixView, 0>{}, std::array{out}, GroupMean{operand(x), group},
      {"mean_rows_forward"}, stream);
}

void mean_rows_backward(ConstMatrixView dy, Index group, MatrixView dx, cudaStream_t stream) {
  require_groups(dx, group, dy);
  map(std::array<ConstMatrixView, 0>{}, std::array{dx}, Repeat{operand(dy), group},
      {"mean_rows_backward"}, stream);
}

void modulate_forward(ConstMatrixView x, ConstMatrixView shift, ConstMatrixView scale, Index group,
                      MatrixView y, cudaStream_t stream) {
  require_groups(x, group, shift);
  require_groups(x, group, scale);
  map(std::array{x}, std::array{y}, Modulate{operand(shift), operand(scale), group},
      {"modulate_forward"}, stream);
}

void modulate_backward(ConstMatrixView dy, ConstMatrixView x, ConstMatrixView scale, Index group,
                       MatrixView dx, MatrixView d_shift, MatrixView d_scale, cudaStream_t stream) {
  require_groups(dy, group, d_shift);
  require_groups(dy, group, d_scale);
  add_group_sums(dy, {}, group, d_shift, "modulate_backward: shifts", stream);
  add_group_sums(dy, x, group, d_scale, "modulate_backward: scales", stream);
  map(std::array{dy}, std::array{dx}, ScaleByGroup{operand(scale), group, 1.0F},
      {"modulate_backward"}, stream);
}

void gate_forward(ConstMatrixView x, ConstMatrixView branch, ConstMatrixView gate, Index group,
                  MatrixView y, cudaStream_t stream) {
  require_groups(x, group, gate);
  map(std::array{x, branch}, std::array{y}, Gate{operand(gate), group}, {"gate_forward"}, stream);
}

void gate_backward(ConstMatrixView dy, ConstMatrixView branch, ConstMatrixView gate, Index group,
                   MatrixView d_branch, MatrixView d_gate, cudaStream_t stream) {
  require_groups(dy, group, d_gate);
  add_group_sums(dy, branch, group, d_gate, "gate_backward: gates", stream);
  map(std::array{dy}, std::array{d_branch}, ScaleByGroup{operand(gate), group, 0.0F},
      {"gate_backward"}, stream);
}

}  // namespace stepcast::runtime::cuda::kernels
