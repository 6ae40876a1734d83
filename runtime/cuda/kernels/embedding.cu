#include "runtime/cuda/kernels/embedding.h"

#include <vector>

#include "runtime/cuda/kernels/internal/element.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kTablesPerLaunch = 32;
constexpr int kThreads = 256;

struct Table {
  const void* weights;
  Index stride;
  const std::int64_t* indices;
  const std::int64_t* offsets;
  Index bags;
  const float* factors;
  void* pooled;
  Index pooled_stride;
  bool mean;
};
/// A kernel argument, so that a launch needs no copy and may be captured.
struct Tables {
  Table at[kTablesPerLaunch];
};

/// Pools `bags_per_group` consecutive bags of one table in a group of G lanes, each lane V packs of
/// N columns. The bags' lookups are one run of indices: rows are fetched U at a time whatever bag
/// they belong to, so that short bags keep as many loads in flight as long ones; a bag's sum is
/// written when its end is passed.
template <class T, int N, int G, int V, int U>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Tables tables, Index dim, int bags_per_group, Format pooled_format) {
  const Table& table = tables.at[blockIdx.y];
  const int lane = static_cast<int>(threadIdx.x) % G;
  const unsigned mask =
      G == 32 ? 0xFFFFFFFFU : ((1U << (G % 32)) - 1U) << (threadIdx.x % 32 / G * G);
  const Index group = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / G;
  const Index first = group * bags_per_group;
  if (first >= table.bags) {
    return;  // whole groups leave together
  }
  const int bags =
      static_cast<int>(table.bags - first < bags_per_group ? table.bags - first : bags_per_group);
  const Index slab = static_cast<Index>(blockIdx.z) * G * V * N;
  const auto* weights = static_cast<const T*>(table.weights);

  // Lane l keeps the end of bag l.
  Index my_end = 0;
  if (lane < bags) {
    my_end = table.offsets != nullptr ? table.offsets[first + lane + 1] : first + lane + 1;
  }
  const Index begin = table.offsets != nullptr ? table.offsets[first] : first;
  const Index all_end = __shfl_sync(mask, my_end, bags - 1, G);

  float sum[V][N] = {};
  int bag = 0;
  Index bag_begin = begin;
  Index bag_end = __shfl_sync(mask, my_end, 0, G);
  const auto finish_bag = [&]() {
    float factor = table.factors != nullptr ? table.factors[first + bag] : 1.0F;
    if (table.mean && bag_end - bag_begin > 1) {
      factor /= static_cast<float>(bag_end - bag_begin);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const Index column = slab + (v * G + lane) * N;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[v][i] *= factor;
      }
      if (column < dim) {
        internal::store_streaming(table.pooled, pooled_format,
                                  (first + bag) * table.pooled_stride + column, sum[v]);
      }
#pragma unroll
      for (int i = 0; i < N; ++i) {
        sum[v][i] = 0;
      }
    }
    ++bag;
    bag_begin = bag_end;
    bag_end = __shfl_sync(mask, my_end, bag < bags ? bag : bags - 1, G);
  };

  for (Index chunk = begin; chunk < all_end; chunk += G) {
    const Index mine = chunk + lane < all_end ? table.indices[chunk + lane] : 0;
    const int count = static_cast<int>(all_end - chunk < G ? all_end - chunk : G);
    for (int first_row = 0; first_row < count; first_row += U) {
      internal::Raw<T, N> rows[U][V];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (first_row + u < count) {
          const Index row = __shfl_sync(mask, mine, first_row + u, G);
#pragma unroll
          for (int v = 0; v < V; ++v) {
            const Index column = slab + (v * G + lane) * N;
            if (column < dim) {
              rows[u][v].load_constant(weights + row * table.stride + column);
            }
          }
        }
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (first_row + u < count) {
          while (chunk + first_row + u >= bag_end) {
            finish_bag();
          }
#pragma unroll
          for (int v = 0; v < V; ++v) {
            if (slab + (v * G + lane) * N < dim) {
              float x[N];
              rows[u][v].to_floats(x);
#pragma unroll
              for (int i = 0; i < N; ++i) {
                sum[v][i] += x[i];
              }
            }
          }
        }
      }
    }
  }
  while (bag < bags) {
    finish_bag();
  }
}

struct Launch {
  Tables tables{};
  int count = 0;
  Index dim = 0;
  Index most_bags = 0;
  Index bags = 0;
  Index lookups = 0;
  bool packed = true;
  Format pooled_format = Format::kFp32;
};

template <class T, int N, int G, int V, int U>
void launch(const Launch& l, cudaStream_t stream) {
  // Groups take several short bags, about 32 lookups, while that leaves threads for every
  // multiprocessor.
  constexpr Index kEnoughThreads = 512 * 1024;
  int per_group = 1;
  while (per_group * 2 <= (G < 8 ? G : 8) && per_group * 2 * l.lookups <= 32 * l.bags &&
         l.bags / (per_group * 2) * G >= kEnoughThreads) {
    per_group *= 2;
  }
  const Index groups = internal::ceil_div(l.most_bags, per_group);
  const dim3 grid(static_cast<unsigned>(internal::ceil_div(groups * G, kThreads)),
                  static_cast<unsigned>(l.count),
                  static_cast<unsigned>(internal::ceil_div(l.dim, Index{G} * V * N)));
  internal::launch("embedding_forward", forward_kernel<T, N, G, V, U>, {grid, kThreads}, stream,
                   l.tables, l.dim, per_group, l.pooled_format);
}

template <class T>
void launch_packed(const Launch& l, cudaStream_t stream) {
  constexpr int kN = internal::kPack<T>;
  const Index packs = internal::ceil_div(l.dim, kN);
  if (packs <= 4) {
    launch<T, kN, 4, 1, 4>(l, stream);
  } else if (packs <= 8) {
    launch<T, kN, 8, 1, 8>(l, stream);
  } else if (packs <= 16) {
    launch<T, kN, 16, 1, 8>(l, stream);
  } else if (packs <= 32) {
    launch<T, kN, 32, 1, 8>(l, stream);
  } else if (packs <= 64) {
    launch<T, kN, 32, 2, 4>(l, stream);
  } else {
    launch<T, kN, 32, 4, 2>(l, stream);
  }
}

void run(const Launch& l, Format weights, cudaStream_t stream) {
  if (l.most_bags == 0 || l.dim == 0) {
    return;
  }
  internal::with_element(weights, [&](auto type) {
    using T = typename decltype(type)::type;
    if (l.packed) {
      launch_packed<T>(l, stream);
    } else {
      launch<T, 1, 32, 4, 4>(l, stream);
    }
  });
}

__global__ void mean_factors_kernel(Bags bags, float* factors) {
  const Index bag = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (bag < bags.count) {
    const Index size = bags.offsets != nullptr ? bags.offsets[bag + 1] - bags.offsets[bag] : 1;
    factors[bag] = 1.0F / static_cast<float>(size > 1 ? size : 1);
  }
}

}  // namespace

void embedding_forward(const EmbeddingTable* tables, Index count, cudaStream_t stream) {
  std::vector<char> done(static_cast<std::size_t>(count), 0);
  for (Index next = 0; next < count; ++next) {
    if (done[static_cast<std::size_t>(next)] != 0) {
      continue;
    }
    // One launch takes tables of one width.
    Launch l;
    l.dim = tables[next].weights.columns;
    l.pooled_format = tables[next].pooled.format;
    const Format format = tables[next].weights.format;
    for (Index i = next; i < count && l.count < kTablesPerLaunch; ++i) {
      const EmbeddingTable& t = tables[i];
      internal::require(t.pooled.rows == t.bags.count && t.pooled.columns == t.weights.columns,
                        "a table's bags and width are those of its pooled matrix");
      if (done[static_cast<std::size_t>(i)] != 0 || t.weights.columns != l.dim ||
          t.weights.format != format || t.pooled.format != l.pooled_format) {
        continue;
      }
      done[static_cast<std::size_t>(i)] = 1;
      l.tables.at[l.count++] = {t.weights.data, t.weights.stride, t.bags.indices,
                                t.bags.offsets, t.bags.count,     t.factors,
                                t.pooled.data,  t.pooled.stride,  t.pooling == Pooling::kMean};
      l.most_bags = t.bags.count > l.most_bags ? t.bags.count : l.most_bags;
      l.bags += t.bags.count;
      l.lookups += t.bags.lookups;
      const int n = 16 / static_cast<int>(element_bytes(format));
      l.packed = l.packed && internal::packs(t.weights, n) && internal::packs(t.pooled, n);
    }
    run(l, format, stream);
  }
}

void mean_factors(const Bags& bags, float* factors, cudaStream_t stream) {
  if (bags.count > 0) {
    internal::launch("mean_factors", mean_factors_kernel,
                     {static_cast<unsigned>(internal::ceil_div(bags.count, kThreads)), kThreads},
                     stream, bags, factors);
  }
}

}  // namespace stepcast::runtime::cuda::kernels
