#include "runtime/cuda/kernels/experts.h"

#include "core/graph/expert_points.h"
#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/reduce.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::ceil_div;
using internal::Operand;
using internal::operand;
using internal::Raw;

constexpr int kThreads = 256;
constexpr int kWarp = 32;

// Places.

__global__ void __launch_bounds__(kThreads)
    place_copies_kernel(ExpertPlaces places, PlacedCopies copies) {
  const Index at = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= places.rows * places.per_token) {
    return;
  }
  const Index row = at / places.per_token;
  const auto choice = static_cast<std::uint64_t>(at % places.per_token);
  const std::uint64_t token = places.first_token + static_cast<std::uint64_t>(row);
  const std::int32_t expert = expert_points::expert_at(
      places.bounds, static_cast<std::int32_t>(places.experts),
      expert_points::point_of(token, places.phase) + choice * expert_points::kUnit);
  const std::uint64_t begin = places.bounds[expert];
  const std::uint64_t end = places.bounds[expert + 1];
  const std::int64_t number =
      expert_points::taken(places.first_token, token, places.phase, begin, end);
  std::int64_t kept = 0;
  for (Index part = 0; part < places.parts; ++part) {
    const std::int64_t* first = places.sent + part * places.experts + expert;
    kept += first[1] - first[0];
  }
  std::int64_t copy = -1;
  if (number < kept) {
    const Index part = ((number + 1) * places.parts - 1) / kept;
    copy = places.sent[part * places.experts + expert] + number - kept * part / places.parts;
  }
  copies.chosen[at] = expert;
  copies.copy_of[at] = static_cast<std::int32_t>(copy);
}

// Router.

/// `lanes` neighbouring lanes share a row and hold every lanes-th element of it.
struct RouterShape {
  Index rows = 0;
  int experts = 0;
  int lanes = 1;
};

/// Calls visit(i, element) for the elements of this lane; i counts them.
template <int Held, class Visit>
__device__ inline void for_each_held(const RouterShape& shape, int lane, Visit visit) {
#pragma unroll
  for (int i = 0; i < Held; ++i) {
    const int element = i * shape.lanes + lane;
    if (element < shape.experts) {
      visit(i, element);
    }
  }
}

template <class Combine>
__device__ inline float lanes_reduce(float value, int lanes, Combine combine) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, step));
  }
  return value;
}

template <int Held>
__global__ void __launch_bounds__(kThreads)
    route_forward_kernel(RouterShape shape, Operand logits, Operand probabilities) {
  const Index thread = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  const Index row = thread / shape.lanes;
  const int lane = static_cast<int>(thread % shape.lanes);
  const bool real = row < shape.rows;  // lanes without a row take part in the shuffles
  const float* x = static_cast<const float*>(logits.data) + (real ? row * logits.stride : 0);
  float held[Held];
  float most = -INFINITY;
  for_each_held<Held>(shape, lane, [&](int i, int element) {
    held[i] = real ? x[element] : 0;
    most = fmaxf(most, held[i]);
  });
  most = lanes_reduce(most, shape.lanes, internal::Maximum{});
  float sum = 0;
  for_each_held<Held>(shape, lane, [&](int i, int) {
    held[i] = expf(held[i] - most);
    sum += held[i];
  });
  sum = lanes_reduce(sum, shape.lanes, internal::Add{});
  if (real) {
    float* y = static_cast<float*>(probabilities.data) + row * probabilities.stride;
    for_each_held<Held>(shape, lane, [&](int i, int element) { y[element] = held[i] / sum; });
  }
}

template <int Held>
__global__ void __launch_bounds__(kThreads)
    route_backward_kernel(RouterShape shape, Operand probabilities, Operand gradient) {
  const Index thread = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  const Index row = thread / shape.lanes;
  const int lane = static_cast<int>(thread % shape.lanes);
  const bool real = row < shape.rows;
  const float* p =
      static_cast<const float*>(probabilities.data) + (real ? row * probabilities.stride : 0);
  float* d = static_cast<float*>(gradient.data) + (real ? row * gradient.stride : 0);
  float weight[Held];
  float held[Held];
  float sum = 0;
  for_each_held<Held>(shape, lane, [&](int i, int element) {
    weight[i] = real ? p[element] : 0;
    held[i] = real ? d[element] : 0;
    sum += weight[i] * held[i];
  });
  sum = lanes_reduce(sum, shape.lanes, internal::Add{});
  if (real) {
    for_each_held<Held>(shape, lane,
                        [&](int i, int element) { d[element] = weight[i] * (held[i] - sum); });
  }
}

template <class Launch>
void with_router(const ConstMatrixView& a, const ConstMatrixView& b, Launch launch) {
  internal::require(a.rows == b.rows && a.columns == b.columns,
                    "a router's matrices have one shape");
  internal::require(element_bytes(a.format) == 4 && element_bytes(b.format) == 4,
                    "a router's matrices are fp32");
  internal::require(a.columns <= kMostExperts, "a router has at most 1024 experts");
  if (a.rows == 0 || a.columns == 0) {
    return;
  }
  RouterShape shape{a.rows, static_cast<int>(a.columns), kWarp};
  const Index wanted = internal::power_of_two(a.columns);
  shape.lanes = wanted < kWarp ? static_cast<int>(wanted) : kWarp;
  const internal::Grid grid{static_cast<unsigned>(ceil_div(a.rows * shape.lanes, kThreads)),
                            kThreads};
  if (a.columns <= kWarp) {
    launch(std::integral_constant<int, 1>{}, shape, grid);
  } else if (a.columns <= 8 * kWarp) {
    launch(std::integral_constant<int, 8>{}, shape, grid);
  } else {
    launch(std::integral_constant<int, 32>{}, shape, grid);
  }
}

// Rows: threads_x threads a row, each with every threads_x-th pack of it.

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    dispatch_copies_kernel(Index rows, Index columns, Operand from, PlacedCopies placed,
                           Operand to) {
  const Index row = static_cast<Index>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) {
    return;
  }
  const T* x = static_cast<const T*>(from.data) + row * from.stride;
  const std::int32_t* copy_of = placed.copy_of + row * placed.per_token;
  for (Index column = threadIdx.x * N; column < columns; column += blockDim.x * N) {
    Raw<T, N> pack;
    pack.load(x + column);
    for (Index choice = 0; choice < placed.per_token; ++choice) {
      const Index copy = copy_of[choice];
      if (copy >= 0) {
        pack.store(static_cast<T*>(to.data) + copy * to.stride + column);
      }
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    combine_copies_kernel(Index rows, Index columns, Operand copies, PlacedCopies placed,
                          Operand probabilities, Operand to) {
  constexpr int kAhead = 4;
  const Index row = static_cast<Index>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= rows) {
    return;
  }
  const auto* p = static_cast<const float*>(probabilities.data);
  for (Index column = threadIdx.x * N; column < columns; column += blockDim.x * N) {
    float sum[N] = {};
    for (Index first = 0; first < placed.per_token; first += kAhead) {
      Raw<T, N> pack[kAhead];
      bool there[kAhead];
      float weight[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const Index at = row * placed.per_token + first + i;
        const Index copy = first + i < placed.per_token ? placed.copy_of[at] : -1;
        there[i] = copy >= 0;
        if (there[i]) {
          pack[i].load(static_cast<const T*>(copies.data) + copy * copies.stride + column);
          weight[i] = p == nullptr ? 1 : p[row * probabilities.stride + placed.chosen[at]];
        }
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (there[i]) {
          float x[N];
          pack[i].to_floats(x);
          for (int j = 0; j < N; ++j) {
            sum[j] += weight[i] * x[j];
          }
        }
      }
    }
    internal::store<T, N>(to.data, to.format, row * to.stride + column, sum);
  }
}

/// One block a row, `Choices` of its choices at a time.
template <class T, int N, int Choices>
__global__ void __launch_bounds__(kThreads)
    combine_backward_kernel(Index columns, Index experts, Operand d_rows, Operand made,
                            Operand probabilities, PlacedCopies placed, Operand d_copies,
                            Operand d_probabilities) {
  __shared__ float shared[kWarp];
  const Index row = blockIdx.x;
  const T* dy = static_cast<const T*>(d_rows.data) + row * d_rows.stride;
  const float* p = static_cast<const float*>(probabilities.data) + row * probabilities.stride;
  float* dp = static_cast<float*>(d_probabilities.data) + row * d_probabilities.stride;
  for (Index expert = threadIdx.x; expert < experts; expert += blockDim.x) {
    dp[expert] = 0;
  }
  for (Index first = 0; first < placed.per_token; first += Choices) {
    Index copy[Choices];
    Index expert[Choices];
    float weight[Choices];
    float dot[Choices] = {};
#pragma unroll
    for (int i = 0; i < Choices; ++i) {
      const Index at = row * placed.per_token + first + i;
      copy[i] = first + i < placed.per_token ? placed.copy_of[at] : -1;
      expert[i] = copy[i] >= 0 ? placed.chosen[at] : 0;
      weight[i] = copy[i] >= 0 ? p[expert[i]] : 0;
    }
    for (Index column = threadIdx.x * N; column < columns; column += blockDim.x * N) {
      float g[N];
      internal::load_pack<T, N>(dy + column, g);
#pragma unroll
      for (int i = 0; i < Choices; ++i) {
        if (copy[i] >= 0) {
          float x[N];
          float out[N];
          internal::load_pack<T, N>(
              static_cast<const T*>(made.data) + copy[i] * made.stride + column, x);
          for (int j = 0; j < N; ++j) {
            dot[i] += g[j] * x[j];
            out[j] = weight[i] * g[j];
          }
          internal::store_pack<T, N>(
              static_cast<T*>(d_copies.data) + copy[i] * d_copies.stride + column, out);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < Choices; ++i) {
      // The barriers inside put the zeros above before what is written here.
      const float sum = internal::block_reduce(dot[i], 0.0F, internal::Add{}, shared);
      if (copy[i] >= 0 && threadIdx.x == 0) {
        dp[expert[i]] = sum;
      }
    }
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sort_copies_kernel(SortedBlocks blocks, Index columns, Operand from, Operand to) {
  const Index i = static_cast<Index>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (i >= blocks.rows) {
    return;
  }
  const Index row = blocks.first + i;
  const std::int64_t* first_to = blocks.there ? blocks.first_sorted : blocks.first_come;
  const std::int64_t* first_from = blocks.there ? blocks.first_come : blocks.first_sorted;
  Index block = 0;  // first_to[block] <= row < first_to[end]: the last that begins there
  for (Index end = blocks.sources * blocks.local; end - block > 1;) {
    const Index middle = block + (end - block) / 2;
    (first_to[middle] <= row ? block : end) = middle;
  }
  const Index inner = blocks.there ? blocks.sources : blocks.local;
  const Index outer = blocks.there ? blocks.local : blocks.sources;
  const Index other = block % inner * outer + block / inner;
  const Index source = first_from[other] + row - first_to[block];
  for (Index column = threadIdx.x * N; column < columns; column += blockDim.x * N) {
    Raw<T, N> pack;
    pack.load(static_cast<const T*>(from.data) + source * from.stride + column);
    pack.store(static_cast<T*>(to.data) + row * to.stride + column);
  }
}

/// Threads for packs of one row; the others of a block take further rows.
int threads_of_row(Index columns, int n) {
  const Index wanted = internal::power_of_two(ceil_div(columns, n));
  return static_cast<int>(wanted < kThreads ? wanted : kThreads);
}

internal::Grid rows_grid(Index rows, Index columns, int n) {
  const int x = threads_of_row(columns, n);
  const int y = kThreads / x;
  return {static_cast<unsigned>(ceil_div(rows, y)),
          dim3(static_cast<unsigned>(x), static_cast<unsigned>(y))};
}

/// Calls visit(Type, pack) for matrices of one format whose rows may be read in such packs.
template <class Visit>
void with_packs(const ConstMatrixView& a, const ConstMatrixView& b, const ConstMatrixView& c,
                Visit visit) {
  internal::require(a.format == b.format && a.format == c.format && a.columns == b.columns &&
                        a.columns == c.columns,
                    "copies and rows have one format and one width");
  internal::with_element(a.format, [&](auto type) {
    constexpr int kPack = internal::kPack<typename decltype(type)::type>;
    if (internal::packs(a, kPack) && internal::packs(b, kPack) && internal::packs(c, kPack)) {
      visit(type, std::integral_constant<int, kPack>{});
    } else {
      visit(type, std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace

void place_copies(const ExpertPlaces& places, const PlacedCopies& copies, cudaStream_t stream) {
  const Index choices = places.rows * places.per_token;
  if (choices > 0) {
    internal::launch("place_copies", place_copies_kernel,
                     {static_cast<unsigned>(ceil_div(choices, kThreads)), kThreads}, stream, places,
                     copies);
  }
}

void route_forward(ConstMatrixView logits, MatrixView probabilities, cudaStream_t stream) {
  with_router(logits, probabilities, [&](auto held, const RouterShape& shape, const auto& grid) {
    internal::launch("route_forward", route_forward_kernel<decltype(held)::value>, grid, stream,
                     shape, operand(logits), operand(probabilities));
  });
}

void route_backward(ConstMatrixView probabilities, MatrixView gradient, cudaStream_t stream) {
  with_router(probabilities, gradient, [&](auto held, const RouterShape& shape, const auto& grid) {
    internal::launch("route_backward", route_backward_kernel<decltype(held)::value>, grid, stream,
                     shape, operand(probabilities), operand(gradient));
  });
}

void dispatch_copies(ConstMatrixView rows, const PlacedCopies& placed, MatrixView copies,
                     cudaStream_t stream) {
  if (rows.elements() == 0) {
    return;
  }
  with_packs(rows, copies, copies, [&](auto type, auto pack) {
    constexpr int kN = decltype(pack)::value;
    internal::launch("dispatch_copies", dispatch_copies_kernel<typename decltype(type)::type, kN>,
                     rows_grid(rows.rows, rows.columns, kN), stream, rows.rows, rows.columns,
                     operand(rows), placed, operand(copies));
  });
}

void combine_copies(ConstMatrixView copies, const PlacedCopies& placed,
                    ConstMatrixView probabilities, MatrixView rows, cudaStream_t stream) {
  if (rows.elements() == 0) {
    return;
  }
  with_packs(rows, copies, copies, [&](auto type, auto pack) {
    constexpr int kN = decltype(pack)::value;
    internal::launch("combine_copies", combine_copies_kernel<typename decltype(type)::type, kN>,
                     rows_grid(rows.rows, rows.columns, kN), stream, rows.rows, rows.columns,
                     operand(copies), placed, operand(probabilities), operand(rows));
  });
}

void combine_copies_backward(ConstMatrixView d_rows, ConstMatrixView made,
                             ConstMatrixView probabilities, const PlacedCopies& placed,
                             MatrixView d_copies, MatrixView d_probabilities, cudaStream_t stream) {
  internal::require(probabilities.rows == d_rows.rows && d_probabilities.rows == d_rows.rows &&
                        probabilities.columns == d_probabilities.columns,
                    "each row has a probability and its gradient for each expert");
  if (d_rows.elements() == 0) {
    return;
  }
  with_packs(d_rows, made, d_copies, [&](auto type, auto pack) {
    using T = typename decltype(type)::type;
    constexpr int kN = decltype(pack)::value;
    const int threads = threads_of_row(d_rows.columns, kN);
    const internal::Grid grid{static_cast<unsigned>(d_rows.rows),
                              static_cast<unsigned>(threads < kWarp ? kWarp : threads)};
    const auto run = [&](auto kernel) {
      internal::launch("combine_copies_backward", kernel, grid, stream, d_rows.columns,
                       probabilities.columns, operand(d_rows), operand(made),
                       operand(probabilities), placed, operand(d_copies),
                       operand(d_probabilities));
    };
    if (placed.per_token <= 2) {
      run(combine_backward_kernel<T, kN, 2>);
    } else {
      run(combine_backward_kernel<T, kN, 8>);
    }
  });
}

void sort_copies(const SortedBlocks& blocks, ConstMatrixView from, MatrixView to,
                 cudaStream_t stream) {
  if (blocks.rows == 0 || to.columns == 0) {
    return;
  }
  with_packs(from, to, to, [&](auto type, auto pack) {
    constexpr int kN = decltype(pack)::value;
    internal::launch("sort_copies", sort_copies_kernel<typename decltype(type)::type, kN>,
                     rows_grid(blocks.rows, to.columns, kN), stream, blocks, to.columns,
                     operand(from), operand(to));
  });
}

}  // namespace stepcast::runtime::cuda::kernels
