#include <vector>

#include "runtime/cuda/kernels/embedding.h"
#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/sorted_rows.h"
#include "runtime/cuda/kernels/token.h"

namespace stepcast::runtime::cuda::kernels {
namespace {

using internal::kSortedTables;
using internal::PairArrays;

constexpr int kThreads = 256;
constexpr int kBagLanes = 8;  // threads that share the lookups of a bag

struct PairTable {
  Bags bags;
  Index first_row;
  Index first_slot;
  Index first_pair;
};
struct PairTables {
  PairTable at[kSortedTables];
};

/// Eight lanes a bag write its lookups as (row, slot) pairs; what the bound of `lookups` leaves
/// over is padding.
__global__ void pairs_kernel(PairTables tables, PairArrays out) {
  const PairTable& t = tables.at[blockIdx.y];
  const Index thread = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  const Index threads = static_cast<Index>(gridDim.x) * kThreads;
  const Index origin = t.bags.offsets != nullptr ? t.bags.offsets[0] : 0;
  const Index total =
      t.bags.offsets != nullptr ? t.bags.offsets[t.bags.count] - origin : t.bags.count;
  for (Index bag = thread / kBagLanes; bag < t.bags.count; bag += threads / kBagLanes) {
    const Index begin = t.bags.offsets != nullptr ? t.bags.offsets[bag] : bag;
    const Index end = t.bags.offsets != nullptr ? t.bags.offsets[bag + 1] : bag + 1;
    for (Index i = begin + thread % kBagLanes; i < end; i += kBagLanes) {
      const Index at = t.first_pair + i - origin;
      out.keys[at] = static_cast<internal::Key>(t.first_row + t.bags.indices[i]);
      out.slots[at] = static_cast<std::uint32_t>(t.first_slot + bag);
    }
  }
  for (Index i = total + thread; i < t.bags.lookups; i += threads) {
    out.keys[t.first_pair + i] = out.pad;
    out.slots[t.first_pair + i] = 0;
  }
}

/// Tables of one update: one format each of weights and gradients, at most kSortedTables, rows and
/// lookups that fit 32 bits.
struct Group {
  internal::SortedTables tables;
  PairTables lookups{};
  Format gradient = Format::kFp32;
  Format weights = Format::kFp32;
  Index rows = 0;
  Index slots = 0;
  Index pairs = 0;
  Index dim = 0;
  Index most_bags = 0;
  bool packed = true;
};

bool state_packs(const float* state) { return reinterpret_cast<std::uintptr_t>(state) % 16 == 0; }

void add_table(Group& g, const EmbeddingTable& t, bool row_state) {
  internal::SortedTable& s = g.tables.at[g.tables.count];
  s.weights = t.weights.data;
  s.stride = t.weights.stride;
  s.dim = t.weights.columns;
  s.gradient = t.pooled.data;
  s.gradient_stride = t.pooled.stride;
  s.offsets = t.pooling == Pooling::kMean ? t.bags.offsets : nullptr;
  s.factors = t.factors;
  s.first = t.first;
  s.second = t.second;
  s.first_row = g.rows;
  s.first_slot = g.slots;
  g.lookups.at[g.tables.count] = {t.bags, g.rows, g.slots, g.pairs};
  ++g.tables.count;
  g.rows += t.weights.rows;
  g.slots += t.bags.count;
  g.pairs += t.bags.lookups;
  g.dim = s.dim > g.dim ? s.dim : g.dim;
  g.most_bags = t.bags.count > g.most_bags ? t.bags.count : g.most_bags;
  g.packed = g.packed && internal::packs(t.weights, 4) && internal::packs(t.pooled, 4) &&
             (row_state || (state_packs(t.first) && state_packs(t.second)));
}

bool fits(const Group& g, const EmbeddingTable& t) {
  constexpr Index kRows = (Index{1} << 32) - 1;
  constexpr Index kPairs = (Index{1} << 31) - 1;
  return g.tables.count < kSortedTables && g.gradient == t.pooled.format &&
         g.weights == t.weights.format && g.rows + t.weights.rows < kRows &&
         g.pairs + t.bags.lookups < kPairs && g.slots + t.bags.count < kRows;
}

std::vector<Group> groups_of(const EmbeddingTable* tables, Index count, bool row_state) {
  std::vector<Group> groups;
  for (Index i = 0; i < count; ++i) {
    const EmbeddingTable& t = tables[i];
    internal::require(t.pooled.rows == t.bags.count && t.pooled.columns == t.weights.columns,
                      "a table's bags and width are those of its gradient");
    if (t.bags.lookups == 0 || t.bags.count == 0) {
      continue;
    }
    if (groups.empty() || !fits(groups.back(), t)) {
      Group g;
      g.gradient = t.pooled.format;
      g.weights = t.weights.format;
      groups.push_back(g);
      internal::require(fits(groups.back(), t),
                        "a table has fewer than 2^32 - 1 rows and 2^31 - 1 lookups");
    }
    add_table(groups.back(), t, row_state);
  }
  return groups;
}

void update(const EmbeddingTable* tables, Index count, const internal::RowRule& rule,
            Workspace workspace, cudaStream_t stream) {
  const bool row_state = rule.accumulate || rule.kind == OptimizerKind::kRowwiseAdagrad ||
                         rule.kind == OptimizerKind::kSgd;
  for (const Group& g : groups_of(tables, count, row_state)) {
    const auto fill = [&](const PairArrays& out) {
      const Index wanted = internal::ceil_div(g.most_bags * kBagLanes, kThreads);
      const dim3 grid(static_cast<unsigned>(wanted < 4096 ? wanted : 4096),
                      static_cast<unsigned>(g.tables.count));
      internal::launch("embedding backward: pairs", pairs_kernel, {grid, kThreads}, stream,
                       g.lookups, out);
    };
    internal::update_sorted_rows(g.tables, g.gradient, g.weights, g.pairs, g.rows, g.dim, g.packed,
                                 rule, fill, workspace, stream);
  }
}

__global__ void token_pairs_kernel(TokenRows tokens, Index count, std::int64_t first, Index rows,
                                   PairArrays out) {
  const Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) {
    const std::int64_t row =
        tokens.data[i / tokens.sequence * tokens.pitch + i % tokens.sequence] - first;
    out.keys[i] = row >= 0 && row < rows ? static_cast<internal::Key>(row) : out.pad;
    out.slots[i] = static_cast<std::uint32_t>(i);
  }
}

template <class T, class U, int N>
__global__ void token_forward_kernel(const T* weights, Index stride, Index rows, Index columns,
                                     std::int64_t first, TokenRows tokens, U* out,
                                     Index out_stride) {
  const Index i = blockIdx.x;
  const std::int64_t row =
      tokens.data[i / tokens.sequence * tokens.pitch + i % tokens.sequence] - first;
  for (Index column = static_cast<Index>(threadIdx.x) * N; column < columns;
       column += static_cast<Index>(blockDim.x) * N) {
    float x[N] = {};
    if (row >= 0 && row < rows) {
      internal::load_pack(weights + row * stride + column, x);
    }
    internal::store_pack(out + i * out_stride + column, x);
  }
}

}  // namespace

std::size_t embedding_backward_workspace(const EmbeddingTable* tables, Index count) {
  std::size_t most = 0;
  for (const Group& g : groups_of(tables, count, false)) {
    const std::size_t bytes = internal::sorted_rows_workspace(g.pairs, g.rows, g.dim);
    most = bytes > most ? bytes : most;
  }
  return most;
}

void embedding_backward(const EmbeddingTable* tables, Index count,
                        const OptimizerSettings& settings, const AdamFactors* factors_on_device,
                        Workspace workspace, cudaStream_t stream) {
  internal::RowRule rule;
  rule.kind = settings.kind;
  rule.learning_rate = settings.learning_rate;
  rule.epsilon = settings.epsilon;
  rule.adam = adam_factors(settings);
  rule.adam_on_device = factors_on_device;
  update(tables, count, rule, workspace, stream);
}

void embedding_gradient(const EmbeddingTable* tables, Index count, Workspace workspace,
                        cudaStream_t stream) {
  internal::RowRule rule;
  rule.accumulate = true;
  update(tables, count, rule, workspace, stream);
}

void token_embedding_forward(ConstMatrixView weights, std::int64_t first, TokenRows tokens,
                             MatrixView out, cudaStream_t stream) {
  internal::require(weights.columns == out.columns, "a token's row is as wide as its activation");
  if (out.rows == 0) {
    return;
  }
  constexpr int kN = 4;
  const bool packed = internal::packs(weights, kN) && internal::packs(out, kN);
  const auto rows = static_cast<unsigned>(out.rows);
  internal::with_element(weights.format, [&](auto from) {
    using T = typename decltype(from)::type;
    internal::with_element(out.format, [&](auto to) {
      using U = typename decltype(to)::type;
      const auto* w = static_cast<const T*>(weights.data);
      auto* o = static_cast<U*>(out.data);
      if (packed) {
        internal::launch("token_embedding_forward", token_forward_kernel<T, U, kN>,
                         {rows, kThreads}, stream, w, weights.stride, weights.rows, weights.columns,
                         first, tokens, o, out.stride);
      } else {
        internal::launch("token_embedding_forward", token_forward_kernel<T, U, 1>, {rows, kThreads},
                         stream, w, weights.stride, weights.rows, weights.columns, first, tokens, o,
                         out.stride);
      }
    });
  });
}

namespace {

/// Rows wider than an update takes are scattered in slabs of columns.
constexpr Index kSlab = 1024;

}  // namespace

std::size_t token_embedding_backward_workspace(Index tokens, Index local_rows, Index hidden) {
  return internal::sorted_rows_workspace(tokens, local_rows, hidden < kSlab ? hidden : kSlab);
}

void token_embedding_backward(ConstMatrixView d_out, std::int64_t first, TokenRows tokens,
                              MatrixView d_weights, Workspace workspace, cudaStream_t stream) {
  internal::require(d_weights.columns == d_out.columns,
                    "a token's row is as wide as its activation");
  internal::RowRule rule;
  rule.accumulate = true;
  const auto fill = [&](const PairArrays& out) {
    internal::launch("token_embedding_backward: pairs", token_pairs_kernel,
                     {static_cast<unsigned>(internal::ceil_div(d_out.rows, kThreads)), kThreads},
                     stream, tokens, d_out.rows, first, d_weights.rows, out);
  };
  const bool packed = internal::packs(d_out, 4) && internal::packs(d_weights, 4);
  const Index slab = packed ? kSlab : 256;
  for (Index column = 0; column < d_out.columns; column += slab) {
    const Index width = d_out.columns - column < slab ? d_out.columns - column : slab;
    internal::SortedTables tables;
    tables.count = 1;
    internal::SortedTable& t = tables.at[0];
    t.weights = d_weights.at(0, column);
    t.stride = d_weights.stride;
    t.dim = width;
    t.gradient = d_out.at(0, column);
    t.gradient_stride = d_out.stride;
    internal::update_sorted_rows(tables, d_out.format, d_weights.format, d_out.rows, d_weights.rows,
                                 width, packed, rule, fill, workspace, stream);
  }
}

}  // namespace stepcast::runtime::cuda::kernels
