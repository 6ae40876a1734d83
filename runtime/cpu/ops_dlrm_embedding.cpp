#include <algorithm>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/sequence_pool.h"
#include "runtime/cpu/ops_dlrm.h"
#include "runtime/op_operands.h"

#include "core/numbers.h"

namespace stepcast::runtime::cpu {
namespace {

using Part = EmbeddingExchange::Part;

const EmbeddingGroup& group_of(const OpContext& c) {
  return c.program.embeddings.at(index(c.op.as<EmbeddingAttributes>().group));
}

/// The rows that lookups and updates work on: of a shard in a slower tier those of its cache.
kernels::MatrixView weights_of(const OpContext& c, const EmbeddingShard& shard) {
  if (shard.cache) {
    return {c.tensor(shard.cache->rows).data, shard.cache->slots, shard.dim};
  }
  return {c.tensor(shard.weights).data, shard.rows, shard.dim};
}

kernels::EmbeddingState state_of(const OpContext& c, const EmbeddingShard& shard) {
  if (!shard.has_state) {
    return {};
  }
  float* first = c.tensor(shard.cache ? shard.cache->state : shard.state).data;
  const std::int64_t rows = shard.cache ? shard.cache->slots : shard.rows;
  return {first, first + rows * shard.dim};  // the second half is Adam's
}

/// Work on one shard of the op's group: its bags, how they pool, its columns in the op's
/// matrix.
struct Work {
  const EmbeddingShard& shard;
  const EmbeddingExchange::Shard& arrived;
  kernels::Bags bags;
  kernels::Pooling pooling = kernels::Pooling::kSum;
  const float* factors = nullptr;  ///< of a mean split by rows: 1 / size of the whole bag
  std::int64_t column = 0;
};

template <class Visit>
void for_each_shard(OpContext& c, Visit visit) {
  DlrmState& state = dlrm_state(c);
  const EmbeddingGroup& group = group_of(c);
  const auto route = c.op.as<EmbeddingAttributes>().route;
  const auto& arrived = state.shards_of(route);
  auto& lists = state.lists[static_cast<std::size_t>(route)];
  STEPCAST_CHECK(lists.size() == group.shards.size(), "'{}' has {} shards, the plan {}",
                 c.program.name(c.op), group.shards.size(), lists.size());
  std::int64_t column = 0;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const EmbeddingShard& shard = group.shards[i];
    const EmbeddingSlice& s = state.slice(arrived[i].slice);
    Work work{shard,   arrived[i],
              {},      shard.mean ? kernels::Pooling::kMean : kernels::Pooling::kSum,
              nullptr, column};
    if (is_local(route)) {
      work.bags = state.slice_bags(c, arrived[i].slice);
      if (s.row_range() && shard.mean) {
        work.factors = state.selections[index(arrived[i].slice)].factors.data();
      }
    } else {
      work.bags = {lists[i].ids.data(), lists[i].offsets.data(),
                   static_cast<kernels::Index>(lists[i].offsets.size()) - 1};
      if (state.whole_lengths(s)) {
        work.factors = lists[i].factors.data();
      }
    }
    if (work.factors != nullptr) {
      work.pooling = kernels::Pooling::kSum;
    }
    if (shard.cache) {
      work.bags.indices = lists[i].slots.data();
    }
    visit(state, work);
    column += shard.dim;
  }
}

/// Rows of one peer's samples, as they travel.
kernels::MatrixView travelling(DlrmState& state, const Work& work, std::size_t peer) {
  return {state.shard_rows.data() + work.arrived.row_elements[peer],
          state.rows_of(work.arrived, peer), work.shard.dim};
}

void gather_sequence(const OpContext& c, DlrmState& state, const Work& work) {
  const auto [first, end] = state.layout.peers(state.slice(work.arrived.slice).route, state.rank);
  for (auto peer = index(first); peer < index(end); ++peer) {
    const kernels::MatrixView out = travelling(state, work, peer);
    if (work.shard.sequence) {
      const kernels::Bags rows{work.bags.indices + work.arrived.begin[peer], nullptr, out.rows};
      kernels::embedding_bag_forward(weights_of(c, work.shard), rows, kernels::Pooling::kSum, out);
      continue;
    }
    const std::int64_t bag = work.arrived.first_bag[peer];
    const kernels::Bags lists{work.bags.indices, work.bags.offsets + bag, out.rows};
    kernels::embedding_bag_forward(weights_of(c, work.shard), lists, work.pooling, out);
    if (work.factors != nullptr) {
      kernels::scale_rows(out, work.factors + bag);
    }
  }
}

/// The rows' gradients of all peers, one after the other.
kernels::MatrixView collect_sequence(DlrmState& state, const Work& work) {
  const std::int64_t dim = work.shard.dim;
  const auto& begin = work.shard.sequence ? work.arrived.begin : work.arrived.first_bag;
  const std::int64_t count = work.shard.sequence ? work.bags.lookups() : work.bags.count;
  if (state.shard_gradient.size() < index(count * dim)) {
    state.shard_gradient.resize(index(count * dim));
  }
  const auto [first, end] = state.layout.peers(state.slice(work.arrived.slice).route, state.rank);
  for (auto peer = index(first); peer < index(end); ++peer) {
    const kernels::MatrixView rows = travelling(state, work, peer);
    std::copy_n(rows.data, rows.rows * dim, state.shard_gradient.data() + begin[peer] * dim);
  }
  return {state.shard_gradient.data(), count, dim};
}

/// Offsets of a part's bags among its own rows.
const std::int64_t* part_offsets(DlrmState& state, const Part& part) {
  if (state.cursors.size() < index(state.batch + 1)) {
    state.cursors.resize(index(state.batch + 1));
  }
  state.cursors[0] = 0;
  for (std::int64_t b = 0; b < state.batch; ++b) {
    state.cursors[index(b + 1)] =
        state.cursors[index(b)] + state.sent_lengths[index(part.lengths + b)];
  }
  return state.cursors.data();
}

/// Adds the rows of each bag to its mean: x [rows, dim], out [bags, dim], the bag's size from
/// `bags`.
void add_to_mean(kernels::ConstMatrixView x, const std::int64_t* offsets, const kernels::Bags& bags,
                 kernels::MatrixView out) {
  for (std::int64_t b = 0; b < out.rows; ++b) {
    const float factor =
        1.0F / static_cast<float>(std::max<std::int64_t>(1, bags.end(b) - bags.begin(b)));
    for (std::int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
      kernels::axpy(factor, x.row(i), out.row(b), x.columns);
    }
  }
}

void spread_from_mean(kernels::ConstMatrixView d_out, const std::int64_t* offsets,
                      const kernels::Bags& bags, kernels::MatrixView dx) {
  for (std::int64_t b = 0; b < d_out.rows; ++b) {
    const float factor =
        1.0F / static_cast<float>(std::max<std::int64_t>(1, bags.end(b) - bags.begin(b)));
    for (std::int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
      kernels::scale(d_out.row(b), factor, dx.row(i), dx.columns);
    }
  }
}

void clear(kernels::MatrixView m) {
  for (std::int64_t i = 0; i < m.rows; ++i) {
    std::fill_n(m.row(i), m.columns, 0.0F);
  }
}

/// Visits the slices of a route with the columns of each in the pooled matrix.
template <class Visit>
void for_each_slice(OpContext& c, const Matrix& pooled, Visit visit) {
  DlrmState& state = dlrm_state(c);
  const auto route = c.op.as<PoolAttributes>().route;
  std::int64_t column = 0;
  for (std::size_t i = 0; i < state.layout.slices.size(); ++i) {
    const EmbeddingSlice& s = state.layout.slices[i];
    if (s.route == route) {
      visit(static_cast<std::int32_t>(i),
            kernels::MatrixView(pooled.data, pooled.rows, pooled.columns).block(column, s.dim));
      column += s.dim;
    }
  }
}

/// Visits the slices whose distinct rows travel once.
template <class Visit>
void for_each_distinct_slice(OpContext& c, const Matrix& pooled, Visit visit) {
  DlrmState& state = dlrm_state(c);
  for_each_slice(c, pooled, [&](std::int32_t id, kernels::MatrixView block) {
    if (state.deduplicates(state.slice(id))) {
      visit(state, id, block);
    }
  });
}

/// Calls visit(bag, 1 / size of the whole bag, the row's columns) for each lookup of a slice, in
/// order; lookups of one row share its columns.
template <class Visit>
void for_each_lookup(OpContext& c, DlrmState& state, std::int32_t slice, Visit visit) {
  const DlrmState::Selection& chosen = state.selections[index(slice)];
  const kernels::Bags bags = state.looked_up_bags(c, slice);
  const kernels::Bags whole = state.local_bags(c, state.slice(slice));
  const std::int64_t first = bags.count > 0 ? bags.begin(0) : 0;
  for (std::int64_t b = 0; b < bags.count; ++b) {
    const float factor =
        1.0F / static_cast<float>(std::max<std::int64_t>(1, whole.end(b) - whole.begin(b)));
    for (std::int64_t i = bags.begin(b); i < bags.end(b); ++i) {
      const std::int64_t distinct = chosen.ids.inverse()[index(i - first)];
      visit(b, factor, state.sent_rows.data() + chosen.places[index(distinct)]);
    }
  }
}

/// Visits the parts of the local batch's sequence slices with the columns of the slice in the
/// pooled matrix.
template <class Visit>
void for_each_sequence_part(OpContext& c, const Matrix& pooled, Visit visit) {
  DlrmState& state = dlrm_state(c);
  for_each_slice(c, pooled, [&](std::int32_t id, kernels::MatrixView block) {
    const EmbeddingSlice& s = state.slice(id);
    bool first = true;
    for (const std::int32_t p : state.parts_of[index(id)]) {
      const Part& part = state.parts[index(p)];
      const kernels::MatrixView rows(state.sent_rows.data() + part.row_elements, part.count, s.dim);
      visit(s, rows, part_offsets(state, part), state.local_bags(c, s), block, first);
      first = false;
    }
  });
}

/// Visits the slices of distinct lists with the samples' rows of the pooled matrix, each holder's
/// rows of the lists, and which of them each sample has.
template <class Visit>
void for_each_list_part(OpContext& c, const Matrix& pooled, Visit visit) {
  DlrmState& state = dlrm_state(c);
  for_each_slice(c, pooled, [&](std::int32_t id, kernels::MatrixView block) {
    if (!state.slice(id).pools_lists_once()) {
      return;
    }
    const auto& inverse = state.selections[index(id)].lists.inverse();
    for (const std::int32_t p : state.parts_of[index(id)]) {
      const Part& part = state.parts[index(p)];
      visit(
          block,
          kernels::MatrixView(state.sent_rows.data() + part.row_elements, part.rows, block.columns),
          inverse, p == state.parts_of[index(id)].front());
    }
  });
}

/// out[b] = rows[list of b], or that added to it.
void spread_lists(kernels::ConstMatrixView rows, const std::vector<std::int64_t>& inverse, bool add,
                  kernels::MatrixView out) {
  for (std::int64_t b = 0; b < out.rows; ++b) {
    const float* row = rows.row(inverse[index(b)]);
    if (add) {
      kernels::axpy(1.0F, row, out.row(b), out.columns);
    } else {
      std::copy_n(row, out.columns, out.row(b));
    }
  }
}

/// d_rows[list] = sum of d_out over the samples that have it.
void gather_lists(kernels::ConstMatrixView d_out, const std::vector<std::int64_t>& inverse,
                  kernels::MatrixView d_rows) {
  clear(d_rows);
  for (std::int64_t b = 0; b < d_out.rows; ++b) {
    kernels::axpy(1.0F, d_out.row(b), d_rows.row(inverse[index(b)]), d_out.columns);
  }
}

/// A row for each distinct list of a slice that is looked up locally.
kernels::MatrixView local_lists(DlrmState& state, const Work& work) {
  if (state.list_rows.size() < index(work.bags.count * work.shard.dim)) {
    state.list_rows.resize(index(work.bags.count * work.shard.dim));
  }
  return {state.list_rows.data(), work.bags.count, work.shard.dim};
}

/// The gradients of the op's bags, from those of its samples: [bags, dim], scaled by the factors.
kernels::MatrixView bag_gradients(OpContext& c, DlrmState& state, const Work& work) {
  const EmbeddingSlice& s = state.slice(work.arrived.slice);
  kernels::MatrixView gradient;
  if (is_sequence(s.route)) {
    gradient = collect_sequence(state, work);
  } else {
    const Matrix d_pooled = c.input(0);
    gradient = kernels::MatrixView(d_pooled.data, d_pooled.rows, d_pooled.columns)
                   .block(work.column, work.shard.dim);
    if (s.pools_lists_once()) {
      const kernels::MatrixView of_samples = gradient;
      gradient = local_lists(state, work);
      gather_lists(of_samples, state.selections[index(work.arrived.slice)].lists.inverse(),
                   gradient);
    }
  }
  if (work.factors != nullptr) {
    kernels::scale_rows(gradient, work.factors);
  }
  return gradient;
}

/// The lookups behind those gradients: of unpooled rows each is a bag.
kernels::Bags gradient_bags(const Work& work, const kernels::MatrixView& gradient) {
  return work.shard.sequence ? kernels::Bags{work.bags.indices, nullptr, gradient.rows} : work.bags;
}

}  // namespace

void embedding_forward(OpContext& c) {
  const auto route = c.op.as<EmbeddingAttributes>().route;
  if (is_local(route)) {
    DlrmState& state = dlrm_state(c);
    for (const auto& shard : state.shards_of(route)) {
      state.select_rows(c, shard.slice);
    }
  }
  for_each_shard(c, [&c, route](DlrmState& state, const Work& work) {
    if (is_sequence(route)) {
      gather_sequence(c, state, work);
      return;
    }
    const bool once = state.slice(work.arrived.slice).pools_lists_once();
    const Matrix pooled = c.output(0);
    const kernels::MatrixView of_samples =
        kernels::MatrixView(pooled.data, pooled.rows, pooled.columns)
            .block(work.column, work.shard.dim);
    const kernels::MatrixView out = once ? local_lists(state, work) : of_samples;
    kernels::embedding_bag_forward(weights_of(c, work.shard), work.bags, work.pooling, out);
    if (work.factors != nullptr) {
      kernels::scale_rows(out, work.factors);
    }
    if (once) {
      spread_lists(out, state.selections[index(work.arrived.slice)].lists.inverse(), false,
                   of_samples);
    }
  });
}

void embedding_backward(OpContext& c) {
  for_each_shard(c, [&c](DlrmState& state, const Work& work) {
    const kernels::MatrixView gradient = bag_gradients(c, state, work);
    kernels::embedding_bag_backward(gradient, gradient_bags(work, gradient),
                                    work.shard.sequence ? kernels::Pooling::kSum : work.pooling,
                                    optimizer_settings(group_of(c).optimizer, c.step),
                                    weights_of(c, work.shard), state_of(c, work.shard),
                                    state.workspace);
  });
}

void embedding_gradient(OpContext& c) {
  std::size_t i = 0;
  for_each_shard(c, [&c, &i](DlrmState& state, const Work& work) {
    const Matrix d_weights = c.output(i++);
    const kernels::MatrixView to{d_weights.data, d_weights.rows, d_weights.columns};
    const kernels::MatrixView gradient = bag_gradients(c, state, work);
    kernels::embedding_bag_gradient(gradient, gradient_bags(work, gradient),
                                    work.shard.sequence ? kernels::Pooling::kSum : work.pooling,
                                    to);
  });
}

void sequence_pool_forward(OpContext& c) {
  for_each_list_part(c, c.output(0),
                     [](kernels::MatrixView out, kernels::MatrixView rows,
                        const std::vector<std::int64_t>& inverse,
                        bool first) { spread_lists(rows, inverse, !first, out); });
  if (c.graph.inputs.distinct_ids) {
    for_each_distinct_slice(
        c, c.output(0), [&c](DlrmState& state, std::int32_t slice, kernels::MatrixView out) {
          clear(out);
          for_each_lookup(c, state, slice, [&](std::int64_t bag, float factor, const float* row) {
            kernels::axpy(factor, row, out.row(bag), out.columns);
          });
        });
    return;
  }
  for_each_sequence_part(
      c, c.output(0),
      [](const EmbeddingSlice& s, kernels::MatrixView rows, const std::int64_t* offsets,
         const kernels::Bags& bags, kernels::MatrixView out, bool first) {
        if (!s.splits_bags()) {
          kernels::sequence_mean_forward(rows, offsets, out);
          return;
        }
        if (first) {
          clear(out);
        }
        add_to_mean(rows, offsets, bags, out);
      });
}

void sequence_pool_backward(OpContext& c) {
  for_each_list_part(
      c, c.input(0),
      [](kernels::MatrixView d_out, kernels::MatrixView d_rows,
         const std::vector<std::int64_t>& inverse, bool) { gather_lists(d_out, inverse, d_rows); });
  if (c.graph.inputs.distinct_ids) {
    for_each_distinct_slice(
        c, c.input(0), [&c](DlrmState& state, std::int32_t slice, kernels::MatrixView d_out) {
          for (const std::int64_t place : state.selections[index(slice)].places) {
            std::fill_n(state.sent_rows.data() + place, d_out.columns, 0.0F);
          }
          for_each_lookup(c, state, slice, [&](std::int64_t bag, float factor, float* row) {
            kernels::axpy(factor, d_out.row(bag), row, d_out.columns);
          });
        });
    return;
  }
  for_each_sequence_part(
      c, c.input(0),
      [](const EmbeddingSlice& s, kernels::MatrixView rows, const std::int64_t* offsets,
         const kernels::Bags& bags, kernels::MatrixView d_out, bool) {
        if (s.splits_bags()) {
          spread_from_mean(d_out, offsets, bags, rows);
        } else {
          kernels::sequence_mean_backward(d_out, offsets, rows);
        }
      });
}

}  // namespace stepcast::runtime::cpu
