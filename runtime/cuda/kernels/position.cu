#include "runtime/cuda/kernels/position.h"

#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::Operand;

constexpr int kRotateThreads = 128;

/// One thread rotates N neighbouring pairs of one head of one token; a block whole tokens where
/// they are narrower than it.
template <class T, int N>
__global__ void __launch_bounds__(kRotateThreads)
    rotate_kernel(const float* table, int length, int head_dim, float direction, Operand x,
                  int tokens, int heads) {
  const int half = head_dim / 2;
  const int packs = half / N;
  const int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const int token = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (i >= heads * packs || token >= tokens) {
    return;
  }
  const int column = i % packs * N;
  const Index first = token * x.stride + i / packs * head_dim + column;
  const float* angles = table + static_cast<Index>(token % length) * head_dim + column;
  float left[N];
  float right[N];
  float cosine[N];
  float sine[N];
  internal::load<T, N>(x.data, x.format, first, left);
  internal::load<T, N>(x.data, x.format, first + half, right);
  internal::load_pack(angles, cosine);
  internal::load_pack(angles + half, sine);
  for (int k = 0; k < N; ++k) {
    const float a = left[k];
    const float b = right[k];
    const float s = direction * sine[k];
    left[k] = a * cosine[k] - b * s;
    right[k] = b * cosine[k] + a * s;
  }
  internal::store<T, N>(x.data, x.format, first, left);
  internal::store<T, N>(x.data, x.format, first + half, right);
}

template <class T, int N>
void launch_rotate(const float* table, Index length, Index head_dim, int direction,
                   const MatrixView& x, cudaStream_t stream) {
  const Index heads = x.columns / head_dim;
  const Index wide = heads * (head_dim / 2 / N);
  const Index threads = internal::power_of_two(wide < kRotateThreads ? wide : kRotateThreads);
  const dim3 block(static_cast<unsigned>(threads), static_cast<unsigned>(kRotateThreads / threads));
  const dim3 grid(static_cast<unsigned>(internal::ceil_div(x.rows, Index{block.y})),
                  static_cast<unsigned>(internal::ceil_div(wide, threads)));
  internal::launch("rotate", rotate_kernel<T, N>, {grid, block}, stream, table,
                   static_cast<int>(length), static_cast<int>(head_dim),
                   static_cast<float>(direction), internal::operand(x), static_cast<int>(x.rows),
                   static_cast<int>(heads));
}

/// x + positions[row mod positions.rows].
struct AddPosition {
  Operand positions;
  Index length;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&x)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i] + internal::load_one(positions.data, positions.format,
                                             row % length * positions.stride + column + i);
    }
  }
};

/// d_positions + sum of dx over the rows of that position.
struct AddPositionGradients {
  Operand dx;
  Index rows;
  Index length;
  template <int N>
  __device__ void operator()(Index row, Index column, float (&x)[1][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    for (int i = 0; i < N; ++i) {
      y[0][i] = x[0][i];
    }
    for (Index token = row; token < rows; token += length) {
      for (int i = 0; i < N; ++i) {
        y[0][i] += internal::load_one(dx.data, dx.format, token * dx.stride + column + i);
      }
    }
  }
};

}  // namespace

void rotate(const float* table, Index length, Index head_dim, int direction, MatrixView x,
            cudaStream_t stream) {
  internal::require(head_dim % 2 == 0 && head_dim > 0 && x.columns % head_dim == 0,
                    "rotary positions need whole heads of even width");
  internal::require(length > 0, "a rotary table has at least one position");
  if (x.rows == 0 || x.columns == 0) {
    return;
  }
  internal::with_element(x.format, [&](auto type) {
    using T = typename decltype(type)::type;
    constexpr int kN = internal::kPack<T>;
    const bool packed = internal::packs(x, kN) && head_dim / 2 % kN == 0 &&
                        reinterpret_cast<std::uintptr_t>(table) % 16 == 0;
    if (packed) {
      launch_rotate<T, kN>(table, length, head_dim, direction, x, stream);
    } else {
      launch_rotate<T, 1>(table, length, head_dim, direction, x, stream);
    }
  });
}

void add_positions(ConstMatrixView positions, MatrixView x, cudaStream_t stream) {
  internal::map(std::array<ConstMatrixView, 1>{x}, std::array{x},
                AddPosition{internal::operand(positions), positions.rows}, {"add_positions"},
                stream);
}

void add_positions_backward(ConstMatrixView dx, MatrixView d_positions, cudaStream_t stream) {
  internal::map(std::array<ConstMatrixView, 1>{d_positions}, std::array{d_positions},
                AddPositionGradients{internal::operand(dx), dx.rows, d_positions.rows},
                {"add_positions_backward"}, stream);
}

}  // namespace stepcast::runtime::cuda::kernels
