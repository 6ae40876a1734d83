#include "runtime/cuda/kernels/internal/sorted_rows.h"

#include <cub/device/device_radix_sort.cuh>

#include "runtime/cuda/kernels/internal/element.cuh"

namespace stepcast::runtime::cuda::kernels::internal {
namespace {

constexpr int kThreads = 256;
constexpr int kLongThreads = 512;
constexpr unsigned kLongBlocks = 256;

/// Everything the update kernels share.
struct Update {
  SortedTables tables;
  RowRule rule;
  Format gradient = Format::kFp32;
  Format weights = Format::kFp32;
  Index pairs = 0;
  Index tiles = 0;
  int tile = 32;
  Index dim = 0;                ///< pitch of a partial sum
  float* partial = nullptr;     ///< [2 * tiles][dim]
  Index* long_tiles = nullptr;  ///< first tiles of long runs, in any order
  unsigned* long_count = nullptr;
};

/// Columns of one lane: V packs of N, G lanes a row.
template <int N, int G, int V>
struct Lanes {
  static __device__ unsigned mask() {
    return G == 32 ? 0xFFFFFFFFU : ((1U << (G % 32)) - 1U) << (threadIdx.x % 32 / G * G);
  }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % G; }
  static __device__ Index column(int v) { return (v * G + lane()) * N; }
};

/// The table that holds a row; rows of a caller ascend, so the search goes on from `t`.
__device__ inline int table_of(const SortedTables& tables, Index row, int t) {
  while (t + 1 < tables.count && row >= tables.at[t + 1].first_row) {
    ++t;
  }
  return t;
}

__device__ inline float slot_factor(const SortedTable& table, Index bag) {
  float factor = table.factors != nullptr ? table.factors[bag] : 1.0F;
  if (table.offsets != nullptr) {
    const Index size = table.offsets[bag + 1] - table.offsets[bag];
    factor /= static_cast<float>(size > 1 ? size : 1);
  }
  return factor;
}

/// One update of row `row` of a table from its gradient. `w` holds the row's weights.
template <int N, int G, int V>
__device__ void apply(const Update& u, const SortedTable& table, Index row,
                      const float (&gradient)[V][N], float (&w)[V][N]) {
  using L = Lanes<N, G, V>;
  const RowRule& rule = u.rule;
  float rate = rule.learning_rate;
  if (!rule.accumulate && rule.kind == OptimizerKind::kRowwiseAdagrad) {
    float squares = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        squares += L::column(v) < table.dim ? gradient[v][i] * gradient[v][i] : 0.0F;
      }
    }
#pragma unroll
    for (int step = G / 2; step > 0; step /= 2) {
      squares += __shfl_xor_sync(L::mask(), squares, step, G);
    }
    const float state = table.first[row] + squares / static_cast<float>(table.dim);
    __syncwarp(L::mask());  // all lanes have read it
    if (L::lane() == 0) {
      table.first[row] = state;
    }
    rate = rule.learning_rate / (sqrtf(state) + rule.epsilon);
  }
  AdamFactors f = rule.adam;
  if (rule.kind == OptimizerKind::kAdam && rule.adam_on_device != nullptr) {
    f = *rule.adam_on_device;
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const Index column = L::column(v);
    if (column >= table.dim) {
      continue;
    }
    const Index at = row * table.dim + column;
    const float(&g)[N] = gradient[v];
    if (rule.accumulate) {
      for (int i = 0; i < N; ++i) {
        w[v][i] += g[i];
      }
    } else if (rule.kind == OptimizerKind::kAdagrad) {
      float s[N];
      load_pack(table.first + at, s);
      for (int i = 0; i < N; ++i) {
        s[i] += g[i] * g[i];
        w[v][i] -= rate * g[i] / (sqrtf(s[i]) + rule.epsilon);
      }
      store_pack(table.first + at, s);
    } else if (rule.kind == OptimizerKind::kAdam) {
      float m[N];
      float s[N];
      load_pack(table.first + at, m);
      load_pack(table.second + at, s);
      for (int i = 0; i < N; ++i) {
        m[i] = f.beta1 * m[i] + (1.0F - f.beta1) * g[i];
        s[i] = f.beta2 * s[i] + (1.0F - f.beta2) * g[i] * g[i];
        w[v][i] -= f.rate * m[i] / (sqrtf(s[i]) * f.second_scale + f.epsilon);
      }
      store_pack(table.first + at, m);
      store_pack(table.second + at, s);
    } else {
      for (int i = 0; i < N; ++i) {
        w[v][i] -= rate * g[i];
      }
    }
    store<Any, N>(table.weights, u.weights, row * table.stride + column, w[v]);
  }
}

template <int N, int G, int V>
__device__ void load_weights(const Update& u, const SortedTable& table, Index row,
                             float (&w)[V][N]) {
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const Index column = Lanes<N, G, V>::column(v);
    if (column < table.dim) {
      load<Any, N>(table.weights, u.weights, row * table.stride + column, w[v]);
    }
  }
}

/// One group of G lanes a tile. Gradient rows and, at the head of a run, the row's weights are
/// fetched U pairs at a time.
template <class T, int N, int G, int V, int U>
__global__ void __launch_bounds__(kThreads)
    tile_kernel(Update u, const Key* keys, const std::uint32_t* slots, Key pad) {
  using L = Lanes<N, G, V>;
  const Index tile = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / G;
  if (tile >= u.tiles) {
    return;  // whole groups leave together
  }
  const Tile span = tile_at(tile, u.tile, u.pairs);
  bool begins_before = span.begin > 0 && keys[span.begin - 1] == keys[span.begin];
  Key run = keys[span.begin];
  int run_table = table_of(u.tables, static_cast<Index>(run), 0);
  int table = run_table;
  float sum[V][N] = {};
  float weights[V][N] = {};

  const auto finish_run = [&](bool goes_on) {
    const RunEnd end = run_end(begins_before, goes_on);
    const SortedTable& t = u.tables.at[run_table];
    if (run != pad) {
      if (end == RunEnd::kWhole) {
        apply<N, G, V>(u, t, static_cast<Index>(run) - t.first_row, sum, weights);
      } else {
        float* to = u.partial + partial_row(tile, end) * u.dim;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (L::column(v) < t.dim) {
            store_pack(to + L::column(v), sum[v]);
          }
        }
      }
    }
    begins_before = false;
  };

  for (Index first = span.begin; first < span.end; first += U) {
    Key key[U];
    int table_at[U];
    float factor[U];
    Raw<T, N> gradient[U][V];
    float fresh[U][V][N];
#pragma unroll
    for (int k = 0; k < U; ++k) {
      const Index i = first + k;
      if (i >= span.end) {
        continue;
      }
      key[k] = keys[i];
      if (key[k] == pad) {
        continue;
      }
      table = table_at[k] = table_of(u.tables, static_cast<Index>(key[k]), table);
      const SortedTable& t = u.tables.at[table];
      const Index bag = static_cast<Index>(slots[i]) - t.first_slot;
      factor[k] = slot_factor(t, bag);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (L::column(v) < t.dim) {
          gradient[k][v].load_constant(static_cast<const T*>(t.gradient) + bag * t.gradient_stride +
                                       L::column(v));
        }
      }
      if (i == span.begin || keys[i - 1] != key[k]) {
        load_weights<N, G, V>(u, t, static_cast<Index>(key[k]) - t.first_row, fresh[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < U; ++k) {
      const Index i = first + k;
      if (i >= span.end) {
        continue;
      }
      const bool head = i == span.begin || key[k] != run;
      if (head && i > span.begin) {
        finish_run(false);
      }
      if (key[k] == pad) {
        run = pad;
        continue;
      }
      if (head) {
        run = key[k];
        run_table = table_at[k];
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        if (L::column(v) < u.tables.at[run_table].dim) {
          float x[N];
          gradient[k][v].to_floats(x);
#pragma unroll
          for (int n = 0; n < N; ++n) {
            sum[v][n] = head ? factor[k] * x[n] : sum[v][n] + factor[k] * x[n];
            weights[v][n] = head ? fresh[k][v][n] : weights[v][n];
          }
        }
      }
    }
  }
  finish_run(span.end < u.pairs && keys[span.end] == run);
}

/// Sum of the partial rows of a run that begins in `tile` and ends in `last`: members [from, to) of
/// it, member 0 being the right partial sum of `tile`, member m the left one of tile + m.
template <int N, int G, int V>
__device__ void add_partials(const Update& u, Index tile, Index from, Index to, Index dim,
                             float (&sum)[V][N]) {
  using L = Lanes<N, G, V>;
#pragma unroll 4
  for (Index m = from; m < to; ++m) {
    const Index row =
        m == 0 ? partial_row(tile, RunEnd::kRight) : partial_row(tile + m, RunEnd::kLeft);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (L::column(v) < dim) {
        float x[N];
        load_pack(u.partial + row * u.dim + L::column(v), x);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          sum[v][i] += x[i];
        }
      }
    }
  }
}

/// One group a tile: if a run begins in it and goes on, adds up its partial sums and updates the
/// row, or, if there are many, leaves that to a block.
template <int N, int G, int V>
__global__ void __launch_bounds__(kThreads) crossing_kernel(Update u, const Key* keys, Key pad) {
  const Index tile = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / G;
  if (tile + 1 >= u.tiles) {
    return;
  }
  const Tile span = tile_at(tile, u.tile, u.pairs);
  const Key run = keys[span.end - 1];
  if (run == pad || keys[span.end] != run || (span.begin > 0 && keys[span.begin - 1] == run)) {
    return;  // no run begins here that goes on
  }
  const Index near = tile_at(tile + kLongRunTiles, u.tile, u.pairs).begin;
  if (near < u.pairs && keys[near] == run) {
    if (Lanes<N, G, V>::lane() == 0) {
      u.long_tiles[atomicAdd(u.long_count, 1U)] = tile;
    }
    return;
  }
  const Index end = upper_bound(keys, span.end, near < u.pairs ? near : u.pairs, run);
  const SortedTable& t = u.tables.at[table_of(u.tables, static_cast<Index>(run), 0)];
  const Index row = static_cast<Index>(run) - t.first_row;
  float sum[V][N] = {};
  float weights[V][N] = {};
  load_weights<N, G, V>(u, t, row, weights);
  add_partials<N, G, V>(u, tile, 0, (end - 1) / u.tile - tile + 1, t.dim, sum);
  apply<N, G, V>(u, t, row, sum, weights);
}

/// One block a long run: each group adds up an equal share of its partial sums, the first adds the
/// shares in their order.
template <int N, int G, int V>
__global__ void __launch_bounds__(kLongThreads) long_run_kernel(Update u, const Key* keys) {
  using L = Lanes<N, G, V>;
  auto* const shares = dynamic_shared<float>();  // [groups][u.dim]
  const Index groups = blockDim.x / G;
  const Index group = threadIdx.x / G;
  const unsigned count = *u.long_count;
  for (unsigned which = blockIdx.x; which < count; which += gridDim.x) {
    const Index tile = u.long_tiles[which];
    const Tile span = tile_at(tile, u.tile, u.pairs);
    const Key run = keys[span.end - 1];
    const Index end = upper_bound(keys, span.end, u.pairs, run);
    const Index members = (end - 1) / u.tile - tile + 1;
    const SortedTable& t = u.tables.at[table_of(u.tables, static_cast<Index>(run), 0)];
    const Index share = (members + groups - 1) / groups;
    const Index from = group * share < members ? group * share : members;
    const Index to = from + share < members ? from + share : members;
    float sum[V][N] = {};
    add_partials<N, G, V>(u, tile, from, to, t.dim, sum);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (L::column(v) < t.dim) {
        store_pack(shares + group * u.dim + L::column(v), sum[v]);
      }
    }
    __syncthreads();
    if (group == 0) {
      const Index row = static_cast<Index>(run) - t.first_row;
      float weights[V][N] = {};
      load_weights<N, G, V>(u, t, row, weights);
      for (Index g = 1; g < groups; ++g) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (L::column(v) < t.dim) {
            float x[N];
            load_pack(shares + g * u.dim + L::column(v), x);
#pragma unroll
            for (int i = 0; i < N; ++i) {
              sum[v][i] += x[i];
            }
          }
        }
      }
      apply<N, G, V>(u, t, row, sum, weights);
    }
    __syncthreads();
  }
}

template <class T, int N, int G, int V>
void launch_tiles(const Update& u, const Key* keys, const std::uint32_t* slots, Key pad,
                  cudaStream_t stream) {
  constexpr int kU = V == 1 ? 4 : V == 2 ? 2 : 1;
  const auto blocks = static_cast<unsigned>(ceil_div(u.tiles * G, kThreads));
  launch("row update", tile_kernel<T, N, G, V, kU>, {blocks, kThreads}, stream, u, keys, slots,
         pad);
}

template <int N, int G, int V>
void launch_crossing(const Update& u, const Key* keys, Key pad, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(u.tiles * G, kThreads));
  launch("row update across tiles", crossing_kernel<N, G, V>, {blocks, kThreads}, stream, u, keys,
         pad);
  if (u.tiles > kLongRunTiles) {
    constexpr Index kSharedFloats = 12 * 1024 - 256;
    Index threads = kLongThreads;
    while (threads > 32 && threads / G * u.dim > kSharedFloats) {
      threads /= 2;
    }
    const std::size_t shared = static_cast<std::size_t>(threads / G * u.dim) * sizeof(float);
    launch("row update of long runs", long_run_kernel<N, G, V>,
           {kLongBlocks, static_cast<unsigned>(threads), shared}, stream, u, keys);
  }
}

/// Calls visit(N, G, V) with the lanes that fit rows of `dim`.
template <class Visit>
void with_lanes(Index dim, bool packed, Visit visit) {
  const auto use = [&](auto n, auto g, auto v) { visit(n, g, v); };
  using std::integral_constant;
  constexpr integral_constant<int, 1> k1;
  constexpr integral_constant<int, 2> k2;
  constexpr integral_constant<int, 4> k4;
  constexpr integral_constant<int, 8> k8;
  constexpr integral_constant<int, 16> k16;
  constexpr integral_constant<int, 32> k32;
  if (!packed) {
    require(dim <= 256, "rows that cannot be read in packs have up to 256 elements");
    use(k1, k32, k8);
  } else if (dim <= 32) {
    use(k4, k8, k1);
  } else if (dim <= 64) {
    use(k4, k16, k1);
  } else if (dim <= 128) {
    use(k4, k32, k1);
  } else if (dim <= 256) {
    use(k4, k32, k2);
  } else {
    use(k4, k32, k8);
  }
}

void launch_all(const Update& u, const Key* keys, const std::uint32_t* slots, Key pad, bool packed,
                cudaStream_t stream) {
  with_element(u.gradient, [&](auto type) {
    using T = typename decltype(type)::type;
    with_lanes(u.dim, packed, [&](auto n, auto g, auto v) {
      launch_tiles<T, decltype(n)::value, decltype(g)::value, decltype(v)::value>(u, keys, slots,
                                                                                  pad, stream);
    });
  });
  with_lanes(u.dim, packed, [&](auto n, auto g, auto v) {
    launch_crossing<decltype(n)::value, decltype(g)::value, decltype(v)::value>(u, keys, pad,
                                                                                stream);
  });
}

int bits_of(Index x) {
  int bits = 1;
  while (bits < 63 && (Index{1} << bits) <= x) {
    ++bits;
  }
  return bits;
}

/// Pieces of the workspace, 256-byte aligned.
struct Layout {
  std::size_t keys[2], slots[2], partial, long_tiles, long_count, sort, sort_bytes, total;
};

cudaError_t sort(void* memory, std::size_t& bytes, cub::DoubleBuffer<Key>& keys,
                 cub::DoubleBuffer<std::uint32_t>& slots, Index pairs, Index rows,
                 cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, slots, static_cast<int>(pairs), 0,
                                         bits_of(rows), stream);
}

Layout layout_of(Index pairs, Index rows, Index dim) {
  Layout l{};
  std::size_t next = 0;
  const auto take = [&next](std::size_t bytes) {
    const std::size_t at = next;
    next += (bytes + 255) / 256 * 256;
    return at;
  };
  const auto n = static_cast<std::size_t>(pairs);
  const auto tiles = static_cast<std::size_t>(ceil_div(pairs, tile_size(pairs)));
  for (int i = 0; i < 2; ++i) {
    l.keys[i] = take(n * sizeof(Key));
    l.slots[i] = take(n * sizeof(std::uint32_t));
  }
  l.partial = take(2 * tiles * static_cast<std::size_t>(dim) * sizeof(float));
  l.long_tiles = take(tiles * sizeof(Index));
  l.long_count = take(sizeof(unsigned));
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<std::uint32_t> slots;
  if (sort(nullptr, l.sort_bytes, keys, slots, pairs, rows, nullptr) != cudaSuccess) {
    check_launch("radix sort (size of its workspace)");
  }
  l.sort = take(l.sort_bytes);
  l.total = next;
  return l;
}

}  // namespace

std::size_t sorted_rows_workspace(Index pairs, Index rows, Index dim) {
  return pairs == 0 ? 0 : layout_of(pairs, rows, dim).total;
}

void update_sorted_rows(const SortedTables& tables, Format gradient, Format weights, Index pairs,
                        Index rows, Index dim, bool packed, const RowRule& rule,
                        const std::function<void(const PairArrays&)>& fill, Workspace workspace,
                        cudaStream_t stream) {
  if (pairs == 0 || dim == 0) {
    return;
  }
  require(dim <= 1024, "rows of up to 1024 elements");
  require(rows < (Index{1} << 32) - 1, "fewer than 2^32 - 1 rows in a call");
  require(pairs < (Index{1} << 31), "fewer than 2^31 lookups in a call");
  const Layout l = layout_of(pairs, rows, dim);
  require_workspace(workspace.bytes, l.total, "embedding backward");
  auto* memory = static_cast<char*>(workspace.data);
  Update u;
  u.tables = tables;
  u.rule = rule;
  u.gradient = gradient;
  u.weights = weights;
  u.pairs = pairs;
  u.tile = tile_size(pairs);
  u.tiles = ceil_div(pairs, u.tile);
  u.dim = dim;
  u.partial = reinterpret_cast<float*>(memory + l.partial);
  u.long_tiles = reinterpret_cast<Index*>(memory + l.long_tiles);
  u.long_count = reinterpret_cast<unsigned*>(memory + l.long_count);
  cudaMemsetAsync(u.long_count, 0, sizeof(unsigned), stream);
  check_launch("clearing the list of long runs");
  cub::DoubleBuffer<Key> keys(reinterpret_cast<Key*>(memory + l.keys[0]),
                              reinterpret_cast<Key*>(memory + l.keys[1]));
  cub::DoubleBuffer<std::uint32_t> slots(reinterpret_cast<std::uint32_t*>(memory + l.slots[0]),
                                         reinterpret_cast<std::uint32_t*>(memory + l.slots[1]));
  const auto pad = static_cast<Key>(rows);
  fill({keys.Current(), slots.Current(), pad});
  std::size_t bytes = l.sort_bytes;
  const cudaError_t sorted = sort(memory + l.sort, bytes, keys, slots, pairs, rows, stream);
  check_launch("radix sort");
  require(sorted == cudaSuccess, "a radix sort that fails leaves an error");
  launch_all(u, keys.Current(), slots.Current(), pad, packed, stream);
}

}  // namespace stepcast::runtime::cuda::kernels::internal
