#include "runtime/cuda/kernels/elementwise.h"

#include "runtime/cuda/kernels/internal/map.cuh"
#include "runtime/initial_value.h"

namespace stepcast::runtime::cuda::kernels {
namespace internal {
namespace {

constexpr int kSumColumns = 32;
constexpr int kSumGroups = 16;

/// Blocks of 32 columns; 16 groups of threads each add every 16th chunk, then group 0 adds up.
__global__ void __launch_bounds__(kSumColumns* kSumGroups)
    partial_sums_kernel(const float* partial, Index chunks, Index columns, int sums,
                        SumTargets targets) {
  __shared__ float shared[kSumGroups][kSumColumns];
  const Index column = static_cast<Index>(blockIdx.x) * kSumColumns + threadIdx.x;
  const int k = static_cast<int>(blockIdx.y);
  float total = 0;
  if (column < columns) {
#pragma unroll 4
    for (Index chunk = threadIdx.y; chunk < chunks; chunk += kSumGroups) {
      total += partial[(chunk * sums + k) * columns + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  const Vector target = targets.at[k];
  if (threadIdx.y == 0 && column < columns && target.data != nullptr) {
    float sum = 0;
#pragma unroll
    for (int g = 0; g < kSumGroups; ++g) {
      sum += shared[g][threadIdx.x];
    }
    store_one(target.data, target.format, column,
              load_one(target.data, target.format, column) + sum);
  }
}

}  // namespace

void add_partial_sums(const float* partial, Index chunks, Index columns, int sums,
                      const SumTargets& targets, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(columns, kSumColumns)),
                  static_cast<unsigned>(sums));
  launch("column sums", partial_sums_kernel, {grid, dim3(kSumColumns, kSumGroups)}, stream, partial,
         chunks, columns, sums, targets);
}

}  // namespace internal

namespace {

using internal::map;

struct Initial {
  const std::uint64_t* rows;
  std::uint32_t first_column;
  float scale;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    const std::uint64_t hash = rows[row];
    for (int i = 0; i < N; ++i) {
      y[0][i] = initial_value(hash, first_column + static_cast<std::uint32_t>(column + i), scale);
    }
  }
};

struct Constant {
  float value;
  template <int N>
  __device__ void operator()(Index, Index, float (&)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = value;
    }
  }
};

/// y = factor * x, after rounding x to `round_to`.
struct Scaled {
  float factor;
  Format round_to;
  template <int N>
  __device__ void operator()(Index, Index, float (&x)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      float value = factor * x[0][i];
      if (round_to == Format::kBf16) {
        value = __bfloat162float(__float2bfloat16_rn(value));
      } else if (round_to == Format::kFp16) {
        value = __half2float(__float2half_rn(value));
      }
      y[0][i] = value;
    }
  }
};

struct Sum {
  float second;  // factor of the second input
  template <int N>
  __device__ void operator()(Index, Index, float (&x)[2][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] + second * x[1][i];
    }
  }
};

struct SumAndRow {
  ConstVector row;
  template <int N>
  __device__ void operator()(Index, Index column, float (&x)[2][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] + x[1][i] + internal::load_one(row.data, row.format, column + i);
    }
  }
};

struct Column {
  template <int N>
  __device__ void operator()(Index, Index, float (&x)[1][N], float (&)[1][N],
                             float (&s)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      s[0][i] = x[0][i];
    }
  }
};

using Inputs1 = std::array<ConstMatrixView, 1>;
using Inputs2 = std::array<ConstMatrixView, 2>;
using Outputs0 = std::array<MatrixView, 0>;
using Outputs1 = std::array<MatrixView, 1>;

constexpr int kBlocksPerLaunch = 32;

struct CopyTask {
  internal::Operand from, to;
  Index rows, columns;
};
struct CopyTasks {
  CopyTask at[kBlocksPerLaunch];
};

/// blockIdx.y is the task; one warp takes a row at a time, packs of N elements.
template <int N>
__global__ void copy_blocks_kernel(CopyTasks tasks) {
  const CopyTask& task = tasks.at[blockIdx.y];
  const Index warps = static_cast<Index>(gridDim.x) * blockDim.y;
  for (Index row = static_cast<Index>(blockIdx.x) * blockDim.y + threadIdx.y; row < task.rows;
       row += warps) {
    for (Index column = threadIdx.x * N; column < task.columns; column += Index{32} * N) {
      float x[N];
      internal::load<internal::Any, N>(task.from.data, task.from.format,
                                       row * task.from.stride + column, x);
      internal::store<internal::Any, N>(task.to.data, task.to.format, row * task.to.stride + column,
                                        x);
    }
  }
}

template <int N>
void launch_copies(const CopyTasks& tasks, int count, Index most_rows, cudaStream_t stream) {
  constexpr Index kWarps = 8;
  const Index wanted = internal::ceil_div(most_rows, kWarps);
  const dim3 grid(static_cast<unsigned>(wanted < 2048 ? wanted : 2048),
                  static_cast<unsigned>(count));
  internal::launch("copy_blocks", copy_blocks_kernel<N>, {grid, dim3(32, kWarps)}, stream, tasks);
}

}  // namespace

void fill_initial(MatrixView x, const std::uint64_t* rows, Index first_column, float scale,
                  cudaStream_t stream) {
  map(std::array<ConstMatrixView, 0>{}, Outputs1{x},
      Initial{rows, static_cast<std::uint32_t>(first_column), scale}, {"fill_initial"}, stream);
}

void fill(MatrixView x, float value, cudaStream_t stream) {
  map(std::array<ConstMatrixView, 0>{}, Outputs1{x}, Constant{value}, {"fill", true}, stream);
}

void copy_block(ConstMatrixView x, MatrixView out, cudaStream_t stream) {
  if (x.data == out.data && x.format == out.format) {
    return;
  }
  map(Inputs1{x}, Outputs1{out}, Scaled{1.0F, Format::kFp32}, {"copy_block", true}, stream);
}

void copy_rounded(ConstMatrixView x, Format round_to, MatrixView out, cudaStream_t stream) {
  map(Inputs1{x}, Outputs1{out}, Scaled{1.0F, round_to}, {"copy_rounded", true}, stream);
}

void copy_blocks(const BlockCopy* blocks, Index count, cudaStream_t stream) {
  for (Index first = 0; first < count; first += kBlocksPerLaunch) {
    const Index n = count - first < kBlocksPerLaunch ? count - first : kBlocksPerLaunch;
    CopyTasks tasks{};
    Index most_rows = 0;
    bool packed = true;
    for (Index i = 0; i < n; ++i) {
      const BlockCopy& b = blocks[first + i];
      internal::require(b.from.rows == b.to.rows && b.from.columns == b.to.columns,
                        "the two sides of a block copy have one shape");
      internal::require(element_bytes(b.from.format) > 0 && element_bytes(b.to.format) > 0,
                        "a device matrix is fp32, tf32, bf16 or fp16");
      tasks.at[i] = {internal::operand(b.from), internal::operand(b.to), b.to.rows, b.to.columns};
      most_rows = b.to.rows > most_rows ? b.to.rows : most_rows;
      packed = packed && internal::packs(b.from, 8) && internal::packs(b.to, 8);
    }
    if (most_rows == 0) {
      continue;
    }
    if (packed) {
      launch_copies<8>(tasks, static_cast<int>(n), most_rows, stream);
    } else {
      launch_copies<1>(tasks, static_cast<int>(n), most_rows, stream);
    }
  }
}

void scale(ConstMatrixView x, float factor, MatrixView out, cudaStream_t stream) {
  map(Inputs1{x}, Outputs1{out}, Scaled{factor, Format::kFp32}, {"scale", true}, stream);
}

void add(ConstMatrixView a, ConstMatrixView b, MatrixView out, cudaStream_t stream) {
  map(Inputs2{a, b}, Outputs1{out}, Sum{1.0F}, {"add", true}, stream);
}

void add_with_row(ConstMatrixView a, ConstMatrixView b, ConstVector row, MatrixView out,
                  cudaStream_t stream) {
  map(Inputs2{a, b}, Outputs1{out}, SumAndRow{row}, {"add_with_row"}, stream);
}

void axpy(float alpha, ConstMatrixView x, MatrixView y, cudaStream_t stream) {
  map(Inputs2{y, x}, Outputs1{y}, Sum{alpha}, {"axpy", true}, stream);
}

std::size_t column_sums_workspace(Index rows, Index columns) {
  return internal::map_sums_workspace(rows, columns, 1);
}

void add_column_sums(ConstMatrixView x, Vector sums, Workspace workspace, cudaStream_t stream) {
  map<1>(Inputs1{x}, Outputs0{}, Column{}, {"column sums"}, stream, workspace, {{sums, {}}});
}

}  // namespace stepcast::runtime::cuda::kernels
