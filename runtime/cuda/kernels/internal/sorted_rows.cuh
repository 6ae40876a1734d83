#pragma once
#include "runtime/cuda/kernels/internal/row_update.cuh"

// The kernels that walk sorted pairs: tiles, runs across tiles, long runs.
namespace stepcast::runtime::cuda::kernels::internal {

constexpr int kRowThreads = 256;
constexpr int kLongThreads = 512;

/// One group of G lanes a tile. Gradient rows and, at the head of a run, the row itself are fetched
/// U pairs at a time.
template <class T, int N, int G, int V, int U>
__global__ void __launch_bounds__(kRowThreads)
    tile_kernel(Update u, const Key* keys, const std::uint32_t* slots, Key pad) {
  using L = Lanes<N, G, V>;
  const Index tile = (static_cast<Index>(blockIdx.x) * kRowThreads + threadIdx.x) / G;
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
  float state = 0;

  const auto finish_run = [&](bool goes_on) {
    const RunEnd end = run_end(begins_before, goes_on);
    const SortedTable& t = u.tables.at[run_table];
    if (run != pad) {
      if (end == RunEnd::kWhole) {
        apply<N, G, V>(u, t, static_cast<Index>(run) - t.first_row, sum, weights, state);
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
    float fresh_state[U] = {};
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
        load_row<N, G, V>(u, t, static_cast<Index>(key[k]) - t.first_row, fresh[k], fresh_state[k]);
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
        state = fresh_state[k];
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
__global__ void __launch_bounds__(kRowThreads) crossing_kernel(Update u, const Key* keys, Key pad) {
  const Index tile = (static_cast<Index>(blockIdx.x) * kRowThreads + threadIdx.x) / G;
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
  float state = 0;
  load_row<N, G, V>(u, t, row, weights, state);
  add_partials<N, G, V>(u, tile, 0, (end - 1) / u.tile - tile + 1, t.dim, sum);
  apply<N, G, V>(u, t, row, sum, weights, state);
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
      float state = 0;
      load_row<N, G, V>(u, t, row, weights, state);
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
      apply<N, G, V>(u, t, row, sum, weights, state);
    }
    __syncthreads();
  }
}

}  // namespace stepcast::runtime::cuda::kernels::internal
