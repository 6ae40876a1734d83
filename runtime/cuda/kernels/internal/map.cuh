#pragma once
#include <array>

#include "runtime/cuda/kernels/internal/element.cuh"

namespace stepcast::runtime::cuda::kernels::internal {

/// K operands of one map; at least one element so that the array exists.
template <int K>
struct Operands {
  Operand at[K > 0 ? K : 1];
};

/// How a map covers [rows, columns]: blocks of threads_x * N columns and `chunk` rows. The order of
/// column sums follows from it, so it depends on the shape and the kind of device alone.
struct MapShape {
  Index rows = 0;
  Index columns = 0;
  Index chunk = 1;  ///< rows of one block
  int threads_x = 1;
  int threads_y = 1;
  [[nodiscard]] Index strips(int n) const { return ceil_div(columns, Index{threads_x} * n); }
  [[nodiscard]] Index chunks() const { return ceil_div(rows, chunk); }
};

constexpr int kMapThreads = 256;
constexpr Index kMapBlocks = 1024;  // enough to fill any device several times over

/// Blocks of a map with sums that a multiprocessor holds at once (the compiler sees to it), and the
/// least rows that each sums.
constexpr int kSummingBlocks = 4;
constexpr Index kSummedRows = 32;

inline MapShape map_shape(Index rows, Index columns, int n, bool sums) {
  MapShape shape;
  shape.rows = rows;
  shape.columns = columns;
  const Index wanted = power_of_two(ceil_div(columns, n));
  shape.threads_x = static_cast<int>(wanted < kMapThreads ? wanted : kMapThreads);
  shape.threads_y = kMapThreads / shape.threads_x;
  const Index strips = shape.strips(n);
  if (sums) {  // one wave: a second one would be the shorter, and double the partial sums
    const Index wave = Index{kSummingBlocks} * multiprocessors() / (strips > 0 ? strips : 1);
    const Index chunk = ceil_div(rows, wave > 0 ? wave : 1);
    shape.chunk = round_up(chunk > kSummedRows ? chunk : kSummedRows, shape.threads_y);
    return shape;
  }
  shape.chunk = round_up(ceil_div(rows * strips, kMapBlocks), shape.threads_y);
  shape.chunk = shape.chunk > 0 ? shape.chunk : shape.threads_y;
  return shape;
}

/// f(row, column, x, y, s): from N columns of each input to N of each output and of each summed
/// value. `partial` [chunks][Sums][columns] receives the sums over the rows of a block.
template <class T, class U, int N, int Inputs, int Outputs, int Sums, class F>
__global__ void __launch_bounds__(kMapThreads, Sums > 0 ? kSummingBlocks : 1)
    map_kernel(MapShape shape, Operands<Inputs> in, Operands<Outputs> out, float* partial, F f) {
  const Index column = (static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  const Index begin = static_cast<Index>(blockIdx.y) * shape.chunk;
  const Index end = begin + shape.chunk < shape.rows ? begin + shape.chunk : shape.rows;
  float total[Sums > 0 ? Sums : 1][N] = {};
  if (column < shape.columns) {
    for (Index row = begin + threadIdx.y; row < end; row += blockDim.y) {
      float x[Inputs > 0 ? Inputs : 1][N];
      float y[Outputs > 0 ? Outputs : 1][N];
      float s[Sums > 0 ? Sums : 1][N];
#pragma unroll
      for (int k = 0; k < Inputs; ++k) {
        load<T, N>(in.at[k].data, in.at[k].format, row * in.at[k].stride + column, x[k]);
      }
      f(row, column, x, y, s);
#pragma unroll
      for (int k = 0; k < Outputs; ++k) {
        store<U, N>(out.at[k].data, out.at[k].format, row * out.at[k].stride + column, y[k]);
      }
#pragma unroll
      for (int k = 0; k < Sums; ++k) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          total[k][i] += s[k][i];
        }
      }
    }
  }
  if constexpr (Sums > 0) {
    __shared__ float shared[kMapThreads * N];
    const int lane = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    for (int k = 0; k < Sums; ++k) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < N; ++i) {
        shared[lane * N + i] = total[k][i];
      }
      __syncthreads();
      if (threadIdx.y == 0 && column < shape.columns) {
        for (int i = 0; i < N; ++i) {
          float sum = 0;
          for (unsigned y = 0; y < blockDim.y; ++y) {
            sum += shared[(y * blockDim.x + threadIdx.x) * N + i];
          }
          partial[(static_cast<Index>(blockIdx.y) * Sums + k) * shape.columns + column + i] = sum;
        }
      }
    }
  }
}

template <class T, class U, int N, int Sums, int Inputs, int Outputs, class F>
void launch_map(Index rows, Index columns, const Operands<Inputs>& in, const Operands<Outputs>& out,
                float* partial, const F& f, const char* name, cudaStream_t stream) {
  const MapShape shape = map_shape(rows, columns, N, (Sums > 0));
  const dim3 grid(static_cast<unsigned>(shape.strips(N)), static_cast<unsigned>(shape.chunks()));
  const dim3 block(static_cast<unsigned>(shape.threads_x), static_cast<unsigned>(shape.threads_y));
  launch(name, map_kernel<T, U, N, Inputs, Outputs, Sums, F>, {grid, block}, stream, shape, in, out,
         partial, f);
}

/// Bytes of `partial` for a map with sums, whatever the pack.
inline std::size_t map_sums_workspace(Index rows, Index columns, int sums) {
  Index chunks = 0;
  for (const int n : {1, 4, 8}) {
    const Index c = map_shape(rows, columns, n, true).chunks();
    chunks = c > chunks ? c : chunks;
  }
  return static_cast<std::size_t>(chunks * columns * sums) * sizeof(float);
}

/// targets[k][j] += sum over chunks of partial[chunk][k][j]; a target without data is skipped.
struct SumTargets {
  Vector at[2];
};
void add_partial_sums(const float* partial, Index chunks, Index columns, int sums,
                      const SumTargets& targets, cudaStream_t stream);

struct MapOptions {
  const char* name = "map";
  bool flat = false;  ///< f looks at neither row nor column
};

/// Runs f over matrices of one shape, in packs where all of them allow it. With sums, `targets` get
/// the column sums added.
template <int Sums = 0, std::size_t InputCount, std::size_t OutputCount, class F>
void map(const std::array<ConstMatrixView, InputCount>& inputs,
         const std::array<MatrixView, OutputCount>& outputs, F f, MapOptions options,
         cudaStream_t stream, Workspace workspace = {}, const SumTargets& targets = {}) {
  Operands<static_cast<int>(InputCount)> in;
  Operands<static_cast<int>(OutputCount)> out;
  std::array<ConstMatrixView, InputCount + OutputCount> all;
  std::size_t next = 0;
  for (const ConstMatrixView& m : inputs) {
    in.at[next] = operand(m);
    all[next++] = m;
  }
  for (const MatrixView& m : outputs) {
    out.at[next - InputCount] = operand(m);
    all[next++] = m;
  }
  Index rows = all[0].rows;
  Index columns = all[0].columns;
  const Format format = all[0].format;
  if (rows == 0 || columns == 0) {
    return;
  }
  bool one_row = options.flat && Sums == 0;
  bool one_format = true;
  for (const ConstMatrixView& m : all) {
    require(m.rows == rows && m.columns == columns, "matrices of one map have one shape");
    require(element_bytes(m.format) > 0, "a device matrix is fp32, tf32, bf16 or fp16");
    one_row = one_row && m.contiguous();
    one_format = one_format && m.format == format;
  }
  if (one_row) {
    columns *= rows;
    rows = 1;
  }
  const int n = one_format ? 16 / static_cast<int>(element_bytes(format)) : kPack<Any>;
  bool packed = true;
  for (const ConstMatrixView& m : all) {
    packed = packed && packs(ConstMatrixView(m.data, m.format, rows, columns, m.stride), n);
  }
  auto* partial = static_cast<float*>(workspace.data);
  if constexpr (Sums > 0) {
    require_workspace(workspace.bytes, map_sums_workspace(rows, columns, Sums), options.name);
  }
  const auto run = [&](auto type) {
    using T = typename decltype(type)::type;
    if (packed) {
      launch_map<T, T, kPack<T>, Sums>(rows, columns, in, out, partial, f, options.name, stream);
    } else {
      launch_map<T, T, 1, Sums>(rows, columns, in, out, partial, f, options.name, stream);
    }
  };
  if (one_format) {
    with_element(format, run);
  } else {
    run(Type<Any>{});
  }
  if constexpr (Sums > 0) {
    add_partial_sums(partial, map_shape(rows, columns, packed ? n : 1, true).chunks(), columns,
                     Sums, targets, stream);
  }
}

}  // namespace stepcast::runtime::cuda::kernels::internal
