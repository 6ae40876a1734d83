#include <algorithm>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/kernels/sequence_pool.h"
#include "runtime/cuda/ops_dlrm.h"
#include "runtime/op_operands.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;
using workloads::EmbeddingRoute;
using workloads::EmbeddingSlice;
using Part = EmbeddingExchange::Part;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

const EmbeddingGroup& group_of(const OpContext& c) {
  return c.program.embeddings.at(index(c.op.detail));
}

EmbeddingRoute route_of(const OpContext& c) { return static_cast<EmbeddingRoute>(c.op.shape[4]); }

/// The rows that lookups and updates work on: of a shard in a slower tier those of its cache.
MatrixView weights_of(const OpContext& c, const EmbeddingShard& shard) {
  const MatrixView m = c.tensor(shard.cache ? shard.cache->rows : shard.weights);
  return {m.data, m.format, shard.cache ? shard.cache->slots : shard.rows, shard.dim};
}

/// One table of the op without its pooled matrix: weights, optimizer state, how its bags pool.
kernels::EmbeddingTable table_of(const OpContext& c, const DlrmState& state, std::size_t i) {
  const EmbeddingShard& shard = group_of(c).shards[i];
  const EmbeddingRoute route = route_of(c);
  const auto r = static_cast<std::size_t>(route);
  const EmbeddingSlice& s = state.slice(state.shards[r][i].slice);
  kernels::EmbeddingTable t;
  t.weights = weights_of(c, shard);
  const std::int32_t slice = state.shards[r][i].slice;
  t.pooling = shard.mean ? kernels::Pooling::kMean : kernels::Pooling::kSum;
  if (workloads::is_local(route)) {
    t.bags = state.slice_bags(c, slice);
    if (s.row_range() && shard.mean) {  // a mean of which this holds a part
      t.factors = state.selections[index(slice)].factors.as<float>();
    }
  } else {
    t.bags = state.shard_bags(route, i);
    if (state.whole_lengths(s)) {
      t.factors = state.lists[r][i].factors.as<float>();
    }
  }
  if (t.factors != nullptr) {
    t.pooling = kernels::Pooling::kSum;
  }
  if (shard.cache) {
    t.bags.indices = state.lists[r][i].slots.as<std::int64_t>();
  }
  if (shard.has_state) {
    t.first = c.floats(c.tensor(shard.cache ? shard.cache->state : shard.state));
    t.second = t.first + t.weights.rows * shard.dim;  // the second half is Adam's
  }
  return t;
}

void check_shards(const OpContext& c, const DlrmState& state) {
  const std::size_t planned = state.shards[static_cast<std::size_t>(route_of(c))].size();
  STEPCAST_CHECK(planned == group_of(c).shards.size(), "'{}' has {} shards, the plan {}",
                 c.program.name(c.op), group_of(c).shards.size(), planned);
}

/// The op's pooled tables with their columns of `pooled`.
std::vector<kernels::EmbeddingTable> pooled_tables(const OpContext& c, const DlrmState& state,
                                                   const MatrixView& pooled) {
  check_shards(c, state);
  std::vector<kernels::EmbeddingTable> tables;
  kernels::Index column = 0;
  for (std::size_t i = 0; i < group_of(c).shards.size(); ++i) {
    kernels::EmbeddingTable t = table_of(c, state, i);
    t.pooled = pooled.block(column, t.weights.columns);
    column += t.weights.columns;
    tables.push_back(t);
  }
  return tables;
}

kernels::Index count_of(const std::vector<kernels::EmbeddingTable>& tables) {
  return static_cast<kernels::Index>(tables.size());
}

/// Rows of one peer's samples for one shard, as they travel.
MatrixView travelling(DlrmState& state, const EmbeddingExchange::Shard& of, std::size_t peer,
                      std::int64_t dim, Format format) {
  const auto element = static_cast<std::int64_t>(stored_bytes(format));
  void* rows = state.shard_rows.reserve(index(state.rows_there * element));
  return {static_cast<char*>(rows) + of.row_elements[peer] * element, format, of.count[peer], dim};
}

/// Gathers the rows of every (shard, peer), unpooled, in the order in which they travel.
void gather_sequences(OpContext& c, DlrmState& state) {
  check_shards(c, state);
  const Format format = c.output(0).format;
  std::vector<kernels::EmbeddingTable> tables;
  for (std::size_t i = 0; i < group_of(c).shards.size(); ++i) {
    const auto& of = state.shards_of(route_of(c))[i];
    const std::int64_t* ids = table_of(c, state, i).bags.indices;
    for (std::size_t peer = 0; peer < of.count.size(); ++peer) {
      if (of.count[peer] > 0) {
        kernels::EmbeddingTable t;
        t.weights = weights_of(c, group_of(c).shards[i]);
        t.bags = {ids + of.begin[peer], nullptr, of.count[peer], of.count[peer]};
        t.pooled = travelling(state, of, peer, t.weights.columns, format);
        tables.push_back(t);
      }
    }
  }
  kernels::embedding_forward(tables.data(), count_of(tables), c.stream);
}

/// Gradients of a sequence table's rows, those of all peers one after the other.
std::vector<kernels::EmbeddingTable> sequence_gradients(OpContext& c, DlrmState& state) {
  check_shards(c, state);
  const Format format = c.input(0).format;
  const auto element = static_cast<std::int64_t>(stored_bytes(format));
  auto* next = static_cast<char*>(state.shard_gradient.reserve(index(state.rows_there * element)));
  std::vector<kernels::EmbeddingTable> tables;
  for (std::size_t i = 0; i < group_of(c).shards.size(); ++i) {
    kernels::EmbeddingTable t = table_of(c, state, i);
    const auto& of = state.shards_of(route_of(c))[i];
    const std::int64_t dim = t.weights.columns;
    const kernels::Index lookups = t.bags.lookups;
    t.bags = {t.bags.indices, nullptr, lookups, lookups};
    t.pooling = kernels::Pooling::kSum;
    t.factors = nullptr;
    t.pooled = {next, format, lookups, dim};
    for (std::size_t peer = 0; peer < of.count.size(); ++peer) {
      if (of.count[peer] == 0) {
        continue;
      }
      const MatrixView from = travelling(state, of, peer, dim, format);
      check(cudaMemcpyAsync(next + of.begin[peer] * dim * element, from.data,
                            index(from.elements() * element), cudaMemcpyDeviceToDevice, c.stream),
            "cudaMemcpyAsync of gradients");
    }
    next += lookups * dim * element;
    tables.push_back(t);
  }
  return tables;
}

std::vector<kernels::EmbeddingTable> gradient_tables(OpContext& c, DlrmState& state) {
  return workloads::is_sequence(route_of(c)) ? sequence_gradients(c, state)
                                             : pooled_tables(c, state, c.input(0));
}

/// The op's slices of which each distinct row has come once as tables to pool. They
/// stand packed, those of one holder after those of another.
std::vector<kernels::EmbeddingTable> distinct_tables(OpContext& c, DlrmState& state,
                                                     const MatrixView& pooled, Format format) {
  std::vector<kernels::EmbeddingTable> tables;
  kernels::Index column = 0;
  for (std::size_t i = 0; i < state.layout.slices.size(); ++i) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (s.route != static_cast<EmbeddingRoute>(c.op.shape[3])) {
      continue;
    }
    DlrmState::Selection& chosen = state.selections[i];
    kernels::Index rows = 0;
    for (const std::int32_t p : state.parts_of[i]) {
      rows += state.parts[index(p)].count;
    }
    kernels::EmbeddingTable t;
    t.weights = {chosen.packed.reserve(index(rows * s.dim) * stored_bytes(format)), format, rows,
                 s.dim};
    t.bags = state.looked_up_bags(c, static_cast<std::int32_t>(i));
    t.bags.indices = chosen.inverse.as<std::int64_t>();
    t.pooling = kernels::Pooling::kMean;
    if (s.row_range()) {
      t.pooling = kernels::Pooling::kSum;
      t.factors = chosen.factors.as<float>();
    }
    t.pooled = pooled.block(column, s.dim);
    column += s.dim;
    tables.push_back(t);
  }
  return tables;
}

/// Copies the distinct rows between the buffer in which they travel and their packed places.
void copy_distinct(OpContext& c, DlrmState& state, Format format, bool packing) {
  const std::size_t element = stored_bytes(format);
  auto* travelled = static_cast<char*>(state.sent_rows.reserve(index(state.rows_here) * element));
  std::vector<kernels::BlockCopy> copies;
  for (std::size_t i = 0; i < state.layout.slices.size(); ++i) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (s.route != static_cast<EmbeddingRoute>(c.op.shape[3])) {
      continue;
    }
    auto* next = state.selections[i].packed.as<char>();
    for (const std::int32_t p : state.parts_of[i]) {
      const Part& part = state.parts[index(p)];
      const MatrixView there(travelled + index(part.row_elements) * element, format, part.count,
                             s.dim);
      const MatrixView packed(next, format, part.count, s.dim);
      next += index(part.count * s.dim) * element;
      if (part.count > 0) {
        copies.push_back(packing ? kernels::BlockCopy{there, packed}
                                 : kernels::BlockCopy{packed, there});
      }
    }
  }
  kernels::copy_blocks(copies.data(), static_cast<kernels::Index>(copies.size()), c.stream);
}

/// Visits the parts of the local batch's sequence slices: rows as they travel, offsets of the
/// part's bags among them, the slice's columns of the pooled matrix.
template <class Visit>
void for_each_sequence_part(OpContext& c, DlrmState& state, const MatrixView& pooled, Format format,
                            Visit visit) {
  const auto element = static_cast<std::int64_t>(stored_bytes(format));
  auto* rows = static_cast<char*>(state.sent_rows.reserve(index(state.rows_here * element)));
  const std::size_t sums = kernels::lengths_to_offsets_workspace(state.batch);
  const std::size_t list = (index(state.batch + 1) * sizeof(std::int64_t) + 255) / 256 * 256;
  const kernels::Workspace work = c.workspace(list + sums);
  auto* offsets = static_cast<std::int64_t*>(work.data);
  kernels::Index column = 0;
  for (std::size_t i = 0; i < state.layout.slices.size(); ++i) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (s.route != static_cast<EmbeddingRoute>(c.op.shape[3])) {
      continue;
    }
    const MatrixView block = pooled.block(column, s.dim);
    column += s.dim;
    bool first = true;
    for (const std::int32_t p : state.parts_of[i]) {
      const Part& part = state.parts[index(p)];
      kernels::lengths_to_offsets(
          state.part_lengths.as<std::int32_t>() + p * state.batch, state.batch, 0, offsets,
          {static_cast<char*>(work.data) + list, work.bytes - list}, c.stream);
      visit(s, MatrixView(rows + part.row_elements * element, format, part.count, s.dim), offsets,
            state.local_bags(c, s), block, first);
      first = false;
    }
  }
}

}  // namespace

void embedding_forward(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  if (workloads::is_local(route_of(c))) {
    for (const auto& shard : state.shards_of(route_of(c))) {
      state.select_rows(c, shard.slice);
    }
  }
  if (workloads::is_sequence(route_of(c))) {
    gather_sequences(c, state);
    return;
  }
  const auto tables = pooled_tables(c, state, c.output(0));
  kernels::embedding_forward(tables.data(), count_of(tables), c.stream);
}

void embedding_backward(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  const auto tables = gradient_tables(c, state);
  const std::size_t bytes = kernels::embedding_backward_workspace(tables.data(), count_of(tables));
  kernels::embedding_backward(tables.data(), count_of(tables),
                              optimizer_settings(group_of(c).optimizer, c.step), c.adam_factors,
                              c.workspace(bytes), c.stream);
}

void embedding_gradient(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  auto tables = gradient_tables(c, state);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const MatrixView d_weights = c.output(i);
    tables[i].weights = {d_weights.data, d_weights.format, tables[i].weights.rows,
                         tables[i].weights.columns};
  }
  const std::size_t bytes = kernels::embedding_backward_workspace(tables.data(), count_of(tables));
  kernels::embedding_gradient(tables.data(), count_of(tables), c.workspace(bytes), c.stream);
}

void sequence_pool_forward(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  if (state.dedup) {
    const Format format = c.input(0).format;
    const auto tables = distinct_tables(c, state, c.output(0), format);
    copy_distinct(c, state, format, true);
    kernels::embedding_forward(tables.data(), count_of(tables), c.stream);
    return;
  }
  for_each_sequence_part(
      c, state, c.output(0), c.input(0).format,
      [&c](const EmbeddingSlice& s, const MatrixView& rows, const std::int64_t* offsets,
           const kernels::Bags& bags, const MatrixView& out, bool first) {
        // Parts of a bag that come from several owners add up to its mean.
        kernels::sequence_mean_forward(rows, offsets, s.splits_bags() ? bags.offsets : nullptr,
                                       s.splits_bags() && !first, out, c.stream);
      });
}

void sequence_pool_backward(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  if (state.dedup) {
    const Format format = c.output(0).format;
    const auto tables = distinct_tables(c, state, c.input(0), format);
    for (const kernels::EmbeddingTable& t : tables) {
      check(cudaMemsetAsync(t.weights.data, 0, index(t.weights.elements()) * stored_bytes(format),
                            c.stream),
            "cudaMemsetAsync of gradients");
    }
    const std::size_t bytes =
        kernels::embedding_backward_workspace(tables.data(), count_of(tables));
    kernels::embedding_gradient(tables.data(), count_of(tables), c.workspace(bytes), c.stream);
    copy_distinct(c, state, format, false);
    return;
  }
  for_each_sequence_part(
      c, state, c.input(0), c.output(0).format,
      [&c](const EmbeddingSlice& s, const MatrixView& rows, const std::int64_t* offsets,
           const kernels::Bags& bags, const MatrixView& d_out, bool) {
        kernels::sequence_mean_backward(d_out, offsets, s.splits_bags() ? bags.offsets : nullptr,
                                        rows, c.stream);
      });
}

}  // namespace stepcast::runtime::cuda
