#pragma once
#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/sorted_rows.h"

// One row of a table and its summed gradient: what a group of lanes does with them.
namespace stepcast::runtime::cuda::kernels::internal {

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

__device__ inline bool has_row_state(const RowRule& rule) {
  return !rule.accumulate && rule.kind == OptimizerKind::kRowwiseAdagrad;
}

/// One update of row `row` of a table from its gradient. `w` and `state` are what load_row read.
template <int N, int G, int V>
__device__ void apply(const Update& u, const SortedTable& table, Index row,
                      const float (&gradient)[V][N], float (&w)[V][N], float state) {
  using L = Lanes<N, G, V>;
  const RowRule& rule = u.rule;
  float rate = rule.learning_rate;
  if (has_row_state(rule)) {
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
    state += squares / static_cast<float>(table.dim);
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

/// Data that an update needs of a row: its weights and, where a row has one, its sum of squares, so
/// that neither is waited for behind the sum of its gradients.
template <int N, int G, int V>
__device__ void load_row(const Update& u, const SortedTable& table, Index row, float (&w)[V][N],
                         float& state) {
  if (has_row_state(u.rule)) {
    state = table.first[row];
  }
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const Index column = Lanes<N, G, V>::column(v);
    if (column < table.dim) {
      load<Any, N>(table.weights, u.weights, row * table.stride + column, w[v]);
    }
  }
}

}  // namespace stepcast::runtime::cuda::kernels::internal
