#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "runtime/cpu/kernels/index_exchange.h"
#include "runtime/cpu/ops_dlrm.h"

#include "core/numbers.h"

namespace stepcast::runtime::cpu {
namespace {

using Arrival = EmbeddingExchange::Arrival;
using Part = EmbeddingExchange::Part;

template <class T>
void grow(std::vector<T>& v, std::int64_t n) {
  if (v.size() < index(n)) {
    v.resize(index(n));
  }
}

kernels::RowSplit row_split(const DlrmState& state, std::int32_t slice) {
  const auto& boundaries = state.boundaries[index(slice)];
  return {state.slice(slice).members(), boundaries.empty() ? nullptr : boundaries.data()};
}

/// Lengths of one slice's bags, per holder; fills the parts' counts.
void write_lengths(DlrmState& state, std::int32_t slice, const kernels::Bags& bags,
                   const kernels::Bags& whole) {
  const EmbeddingSlice& s = state.slice(slice);
  const auto& parts = state.parts_of[index(slice)];
  if (s.row_split()) {
    grow(state.counted, static_cast<std::int64_t>(parts.size()) * bags.count);
    kernels::count_by_owner(bags, row_split(state, slice), state.counted.data());
  } else {
    grow(state.counted, bags.count);
    kernels::bag_lengths(bags, state.counted.data());
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    Part& part = state.parts[index(parts[p])];
    std::int32_t* out = state.sent_lengths.data() + part.lengths;
    const std::int64_t* in = state.counted.data() + static_cast<std::int64_t>(p) * bags.count;
    part.count = 0;
    part.rows = bags.count;
    for (kernels::Index b = 0; b < bags.count; ++b) {
      out[b] = static_cast<std::int32_t>(in[b]);
      part.count += in[b];
    }
    std::fill(out + bags.count, out + state.batch, DlrmState::kNoBag);
    if (state.whole_lengths(s)) {
      out += state.batch;
      for (kernels::Index b = 0; b < whole.count; ++b) {
        out[b] = static_cast<std::int32_t>(whole.end(b) - whole.begin(b));
      }
      std::fill(out + whole.count, out + state.batch, DlrmState::kNoBag);
    }
  }
}

void write_ids(DlrmState& state, std::int32_t slice, const kernels::Bags& bags) {
  const auto& parts = state.parts_of[index(slice)];
  if (!state.slice(slice).row_split()) {
    const std::int64_t* first = bags.indices + (bags.count > 0 ? bags.begin(0) : 0);
    std::copy_n(first, bags.lookups(),
                state.sent_ids.data() + state.parts[index(parts.front())].ids);
    return;
  }
  state.cursors.clear();
  for (const std::int32_t p : parts) {
    state.cursors.push_back(state.parts[index(p)].ids);
  }
  kernels::fill_by_owner(bags, row_split(state, slice), state.cursors.data(),
                         state.sent_ids.data());
}

/// Places the rows of a slice's distinct ids once they have come: in the order in which
/// write_ids sends the ids.
void place_distinct_rows(DlrmState& state, std::int32_t slice) {
  const EmbeddingSlice& s = state.slice(slice);
  DlrmState::Selection& chosen = state.selections[index(slice)];
  const auto& parts = state.parts_of[index(slice)];
  const kernels::RowSplit split = row_split(state, slice);
  std::vector<std::int64_t> next;
  for (const std::int32_t p : parts) {
    next.push_back(state.parts[index(p)].row_elements);
  }
  chosen.places.clear();
  for (const std::int64_t row : chosen.ids.distinct()) {
    const std::size_t owner = s.row_split() ? index(kernels::owner_of(row, split)) : 0;
    chosen.places.push_back(next[owner]);
    next[owner] += s.dim;
  }
}

void exchange_lengths(OpContext& c, DlrmState& state) {
  const auto& n = state.length_counts;
  c.collectives->all_to_all_v(state.sent_lengths.data(), n.send, n.send_offsets,
                              state.lengths.data(), n.receive, n.receive_offsets,
                              sizeof(std::int32_t));
  c.bytes_sent = n.bytes_to_others(c.collectives->rank(), sizeof(std::int32_t));
}

void exchange_ids(OpContext& c, DlrmState& state) {
  for (Arrival& a : state.arrivals) {
    const std::int32_t* first = state.lengths.data() + a.lengths;
    const std::int32_t* last = std::find(first, first + state.batch, DlrmState::kNoBag);
    a.bags = last - first;
    a.count = std::accumulate(first, last, std::int64_t{0});
  }
  state.place_arrivals();
  const auto& n = state.id_counts;
  grow(state.ids, state.ids_received);
  c.collectives->all_to_all_v(state.sent_ids.data(), n.send, n.send_offsets, state.ids.data(),
                              n.receive, n.receive_offsets, sizeof(std::int64_t));
  c.bytes_sent = n.bytes_to_others(c.collectives->rank(), sizeof(std::int64_t));
}

void exchange_rows(OpContext& c, DlrmState& state) {
  const auto route = c.op.as<CollectiveAttributes>().route;
  const bool forward = c.op.phase == Phase::kForward;
  DlrmState::Counts& n = state.row_counts;
  const float* send = nullptr;
  float* receive = nullptr;
  if (is_sequence(route)) {
    state.set_sequence_counts(forward, n, route);
    send = (forward ? state.shard_rows : state.sent_rows).data();
    receive = (forward ? state.sent_rows : state.shard_rows).data();
  } else {
    state.set_pooled_counts(route, forward, n);
    send = c.input(0).data;
    receive = c.output(0).data;
  }
  c.collectives->all_to_all_v(send, n.send, n.send_offsets, receive, n.receive, n.receive_offsets,
                              sizeof(float));
  c.bytes_sent = n.bytes_to_others(c.collectives->rank(), sizeof(float));
}

}  // namespace

void index_pack(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  for (std::size_t s = 0; s < state.layout.slices.size(); ++s) {
    if (!state.parts_of[s].empty()) {
      const auto id = static_cast<std::int32_t>(s);
      state.select_rows(c, id);
      write_lengths(state, id, state.slice_bags(c, id), state.pooled_bags(c, id));
    }
  }
  state.place_parts();
  grow(state.sent_ids, state.ids_sent);
  grow(state.sent_rows, state.rows_here);
  for (std::size_t s = 0; s < state.layout.slices.size(); ++s) {
    if (!state.parts_of[s].empty()) {
      const auto id = static_cast<std::int32_t>(s);
      write_ids(state, id, state.slice_bags(c, id));
      if (state.deduplicates(state.slice(id))) {
        place_distinct_rows(state, id);
      }
    }
  }
}

void index_unpack(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  // Bag lengths in place of offsets first, then the running sums.
  for (const Arrival& a : state.arrivals) {
    DlrmState::Lists& lists = state.lists_of(a);
    const EmbeddingExchange::Shard& shard = state.shards_of(a.route)[a.shard];
    const EmbeddingSlice& s = state.slice(shard.slice);
    const std::int64_t first = shard.first_bag[index(a.peer)];
    const std::int64_t bags = EmbeddingExchange::bags_of(shard);
    lists.offsets.resize(index(bags) + 1);
    for (std::int64_t b = 0; b < a.bags; ++b) {
      lists.offsets[index(first + b + 1)] = state.lengths[index(a.lengths + b)];
    }
    if (state.whole_lengths(s)) {
      grow(lists.factors, bags);
      for (std::int64_t b = 0; b < a.bags; ++b) {
        lists.factors[index(first + b)] =
            1.0F /
            static_cast<float>(std::max(1, state.lengths[index(a.lengths + state.batch + b)]));
      }
    }
  }
  for (auto& of_route : state.lists) {
    for (DlrmState::Lists& lists : of_route) {
      if (!lists.offsets.empty()) {
        lists.offsets[0] = 0;
        std::partial_sum(lists.offsets.begin(), lists.offsets.end(), lists.offsets.begin());
        grow(lists.ids, lists.offsets.back());
      }
    }
  }
  for (const Arrival& a : state.arrivals) {
    const std::int64_t begin = state.shards_of(a.route)[a.shard].begin[index(a.peer)];
    std::copy_n(state.ids.data() + a.ids, a.count, state.lists_of(a).ids.data() + begin);
  }
  grow(state.shard_rows, state.rows_there);
}

void all_to_all_v(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  if (c.op.format == Format::kInt32) {
    exchange_lengths(c, state);
  } else if (c.op.format == Format::kInt64) {
    exchange_ids(c, state);
  } else {
    exchange_rows(c, state);
  }
}

}  // namespace stepcast::runtime::cpu
