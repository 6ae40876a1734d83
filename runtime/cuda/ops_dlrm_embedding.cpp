
#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/distinct_lists.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/kernels/sequence_pool.h"
#include "runtime/cuda/ops_dlrm.h"
#include "runtime/op_operands.h"

#include "core/numbers.h"

namespace stepcast::runtime::cuda {
namespace {

using kernels::MatrixView;
using Part = EmbeddingExchange::Part;

const EmbeddingGroup& group_of(const OpContext& c) {
  return c.program.embeddings.at(index(c.op.as<EmbeddingAttributes>().group));
}

EmbeddingRoute route_of(const OpContext& c) { return c.op.as<EmbeddingAttributes>().route; }

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
  if (is_local(route)) {
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

/// The lists that pool a table once and the samples that have them.
struct PooledLists {
  MatrixView lists;             ///< [lists, dim]
  MatrixView samples;           ///< [samples, dim]
  const std::int64_t* inverse;  ///< by sample: its list
};

/// A row in `format` for each distinct list of a slice.
MatrixView list_rows(DlrmState::Selection& chosen, std::int64_t lists, std::int64_t dim,
                     Format format) {
  return {chosen.packed.reserve(index(lists * dim) * stored_bytes(format)), format, lists, dim};
}

/// Puts the distinct lists of the op's tables in the place of its samples, where local lookups pool
/// them once.
std::vector<PooledLists> replace_by_lists(const OpContext& c, DlrmState& state, Format format,
                                          std::vector<kernels::EmbeddingTable>& tables) {
  std::vector<PooledLists> all;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const std::int32_t slice = state.shards_of(route_of(c))[i].slice;
    if (!is_local(route_of(c)) || !state.slice(slice).pools_lists_once()) {
      continue;
    }
    DlrmState::Selection& chosen = state.selections[index(slice)];
    MatrixView& pooled = tables[i].pooled;
    all.push_back({list_rows(chosen, pooled.rows, pooled.columns, format), pooled,
                   chosen.inverse.as<std::int64_t>()});
    pooled = all.back().lists;
  }
  return all;
}

/// Row of each list = sum of the rows of the samples that have it.
void gather_lists(const OpContext& c, const std::vector<PooledLists>& all) {
  if (all.empty()) {
    return;
  }
  std::vector<kernels::EmbeddingTable> tables;
  for (const PooledLists& l : all) {
    check(cudaMemsetAsync(l.lists.data, 0, index(l.lists.elements()) * stored_bytes(l.lists.format),
                          c.stream),
          "cudaMemsetAsync of gradients");
    kernels::EmbeddingTable t;
    t.weights = l.lists;
    t.bags = {l.inverse, nullptr, l.samples.rows, l.samples.rows};
    t.pooled = l.samples;
    tables.push_back(t);
  }
  const std::size_t bytes = kernels::embedding_backward_workspace(tables.data(), count_of(tables));
  kernels::embedding_gradient(tables.data(), count_of(tables), c.workspace(bytes), c.stream);
}

/// Rows of one peer's samples or distinct lists for one shard, as they travel.
MatrixView travelling(DlrmState& state, const EmbeddingExchange::Shard& of, std::size_t peer,
                      std::int64_t dim, Format format) {
  const auto element = static_cast<std::int64_t>(stored_bytes(format));
  void* rows = state.shard_rows.reserve(index(state.rows_there * element));
  return {static_cast<char*>(rows) + of.row_elements[peer] * element, format,
          state.rows_of(of, peer), dim};
}

/// Gathers the rows of every (shard, peer), unpooled or one for each distinct list, in the order in
/// which they travel.
void gather_sequences(OpContext& c, DlrmState& state) {
  check_shards(c, state);
  const Format format = c.output(0).format;
  std::vector<kernels::EmbeddingTable> tables;
  for (std::size_t i = 0; i < group_of(c).shards.size(); ++i) {
    const auto& of = state.shards_of(route_of(c))[i];
    const kernels::EmbeddingTable all = table_of(c, state, i);
    for (std::size_t peer = 0; peer < of.count.size(); ++peer) {
      kernels::EmbeddingTable t = all;
      if (group_of(c).shards[i].sequence) {
        t.bags = {all.bags.indices + of.begin[peer], nullptr, of.count[peer], of.count[peer]};
        t.pooling = kernels::Pooling::kSum;
        t.factors = nullptr;
      } else {
        const std::int64_t bag = of.first_bag[peer];
        t.bags = {all.bags.indices, all.bags.offsets + bag, of.bags[peer], of.count[peer]};
        t.factors = all.factors != nullptr ? all.factors + bag : nullptr;
      }
      if (t.bags.count > 0) {
        t.pooled = travelling(state, of, peer, t.weights.columns, format);
        tables.push_back(t);
      }
    }
  }
  kernels::embedding_forward(tables.data(), count_of(tables), c.stream);
}

/// Gradients of a table's rows or distinct lists, those of all peers one after the other.
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
    const bool sequence = group_of(c).shards[i].sequence;
    if (sequence) {
      t.bags = {t.bags.indices, nullptr, t.bags.lookups, t.bags.lookups};
      t.pooling = kernels::Pooling::kSum;
      t.factors = nullptr;
    }
    t.pooled = {next, format, t.bags.count, dim};
    for (std::size_t peer = 0; peer < of.count.size(); ++peer) {
      const MatrixView from = travelling(state, of, peer, dim, format);
      if (from.rows == 0) {
        continue;
      }
      const std::int64_t first = sequence ? of.begin[peer] : of.first_bag[peer];
      check(cudaMemcpyAsync(next + first * dim * element, from.data,
                            index(from.elements() * element), cudaMemcpyDeviceToDevice, c.stream),
            "cudaMemcpyAsync of gradients");
    }
    next += t.pooled.elements() * element;
    tables.push_back(t);
  }
  return tables;
}

std::vector<kernels::EmbeddingTable> gradient_tables(OpContext& c, DlrmState& state) {
  if (is_sequence(route_of(c))) {
    return sequence_gradients(c, state);
  }
  auto tables = pooled_tables(c, state, c.input(0));
  gather_lists(c, replace_by_lists(c, state, Format::kFp32, tables));
  return tables;
}

/// Visits the op's slices with the columns of each in the pooled matrix.
template <class Visit>
void for_each_slice(const OpContext& c, DlrmState& state, const MatrixView& pooled, Visit visit) {
  kernels::Index column = 0;
  for (std::size_t i = 0; i < state.layout.slices.size(); ++i) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (s.route == c.op.as<PoolAttributes>().route) {
      visit(i, pooled.block(column, s.dim));
      column += s.dim;
    }
  }
}

/// Rows of a part as they come and go.
MatrixView arrived(DlrmState& state, const Part& part, std::int64_t dim, Format format) {
  const std::size_t element = stored_bytes(format);
  auto* rows = static_cast<char*>(state.sent_rows.reserve(index(state.rows_here) * element));
  return {rows + index(part.row_elements) * element, format, part.rows, dim};
}

/// Each sample gets the row of its list; parts of it that come from several owners add up.
void spread_lists(OpContext& c, DlrmState& state, const MatrixView& pooled, Format format) {
  for_each_slice(c, state, pooled, [&](std::size_t i, const MatrixView& samples) {
    if (!state.layout.slices[i].pools_lists_once()) {
      return;
    }
    for (const std::int32_t p : state.parts_of[i]) {
      kernels::spread_rows(arrived(state, state.parts[index(p)], samples.columns, format),
                           state.selections[i].inverse.as<std::int64_t>(),
                           p != state.parts_of[i].front(), samples, c.stream);
    }
  });
}

/// The gradient of each list, to every owner of a part of it.
void return_lists(OpContext& c, DlrmState& state, const MatrixView& d_pooled, Format format) {
  std::vector<PooledLists> all;
  std::vector<kernels::BlockCopy> copies;
  for_each_slice(c, state, d_pooled, [&](std::size_t i, const MatrixView& samples) {
    if (!state.layout.slices[i].pools_lists_once() || state.parts_of[i].empty()) {
      return;
    }
    DlrmState::Selection& chosen = state.selections[i];
    const Part& first = state.parts[index(state.parts_of[i].front())];
    all.push_back({list_rows(chosen, first.rows, samples.columns, format), samples,
                   chosen.inverse.as<std::int64_t>()});
    for (const std::int32_t p : state.parts_of[i]) {
      copies.push_back(
          {all.back().lists, arrived(state, state.parts[index(p)], samples.columns, format)});
    }
  });
  gather_lists(c, all);
  kernels::copy_blocks(copies.data(), static_cast<kernels::Index>(copies.size()), c.stream);
}

/// The op's slices of which each distinct row has come once as tables to pool. They
/// stand packed, those of one holder after those of another.
std::vector<kernels::EmbeddingTable> distinct_tables(OpContext& c, DlrmState& state,
                                                     const MatrixView& pooled, Format format) {
  std::vector<kernels::EmbeddingTable> tables;
  for_each_slice(c, state, pooled, [&](std::size_t i, const MatrixView& block) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (!state.deduplicates(s)) {
      return;
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
    t.pooled = block;
    tables.push_back(t);
  });
  return tables;
}

/// Copies the distinct rows between the buffer in which they travel and their packed places.
void copy_distinct(OpContext& c, DlrmState& state, Format format, bool packing) {
  std::vector<kernels::BlockCopy> copies;
  for (std::size_t i = 0; i < state.layout.slices.size(); ++i) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (s.route != c.op.as<PoolAttributes>().route || !state.deduplicates(s)) {
      continue;
    }
    auto* next = state.selections[i].packed.as<char>();
    for (const std::int32_t p : state.parts_of[i]) {
      const MatrixView there = arrived(state, state.parts[index(p)], s.dim, format);
      const MatrixView packed(next, format, there.rows, s.dim);
      next += index(packed.elements()) * stored_bytes(format);
      if (there.rows > 0) {
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
  const std::size_t sums = kernels::lengths_to_offsets_workspace(state.batch);
  const std::size_t list = (index(state.batch + 1) * sizeof(std::int64_t) + 255) / 256 * 256;
  const kernels::Workspace work = c.workspace(list + sums);
  auto* offsets = static_cast<std::int64_t*>(work.data);
  for_each_slice(c, state, pooled, [&](std::size_t i, const MatrixView& block) {
    const EmbeddingSlice& s = state.layout.slices[i];
    bool first = true;
    for (const std::int32_t p : state.parts_of[i]) {
      const Part& part = state.parts[index(p)];
      kernels::lengths_to_offsets(
          state.part_lengths.as<std::int32_t>() + p * state.batch, state.batch, 0, offsets,
          {static_cast<char*>(work.data) + list, work.bytes - list}, c.stream);
      visit(s, arrived(state, part, s.dim, format), offsets, state.local_bags(c, s), block, first);
      first = false;
    }
  });
}

}  // namespace

void embedding_forward(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  if (is_local(route_of(c))) {
    for (const auto& shard : state.shards_of(route_of(c))) {
      state.select_rows(c, shard.slice);
    }
  }
  if (is_sequence(route_of(c))) {
    gather_sequences(c, state);
    return;
  }
  auto tables = pooled_tables(c, state, c.output(0));
  const auto lists = replace_by_lists(c, state, c.output(0).format, tables);
  kernels::embedding_forward(tables.data(), count_of(tables), c.stream);
  for (const PooledLists& l : lists) {
    kernels::spread_rows(l.lists, l.inverse, false, l.samples, c.stream);
  }
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
    spread_lists(c, state, c.output(0), format);
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
    return_lists(c, state, c.input(0), format);
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
