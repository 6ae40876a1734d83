#include <algorithm>

#include "core/error.h"
#include "runtime/cpu/kernels/index_exchange.h"
#include "runtime/cpu/ops_dlrm.h"

namespace stepcast::runtime::cpu {
namespace {

using workloads::EmbeddingRoute;
using workloads::EmbeddingSlice;
using Part = DlrmState::Part;
using Shard = DlrmState::Shard;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

template <class T>
void grow(std::vector<T>& v, std::int64_t n) {
  if (v.size() < index(n)) {
    v.resize(index(n));
  }
}

kernels::RowSplit row_split(const DlrmState& state, std::int32_t slice) {
  const auto& boundaries = state.boundaries[index(slice)];
  return {static_cast<kernels::Index>(state.slice(slice).ranks.size()),
          boundaries.empty() ? nullptr : boundaries.data()};
}

/// Lengths of one slice's bags, per holder; fills the parts' counts.
void write_lengths(DlrmState& state, std::int32_t slice, const kernels::Bags& bags) {
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
    for (kernels::Index b = 0; b < bags.count; ++b) {
      out[b] = static_cast<std::int32_t>(in[b]);
      part.count += in[b];
    }
    if (state.whole_lengths(s)) {
      for (kernels::Index b = 0; b < bags.count; ++b) {
        out[bags.count + b] = static_cast<std::int32_t>(bags.end(b) - bags.begin(b));
      }
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

/// Where the ids and rows of each part stand, now that the counts are known.
void place_parts(DlrmState& state) {
  std::fill(state.id_counts.send.begin(), state.id_counts.send.end(), 0);
  std::int64_t ids = 0;
  std::int64_t rows = 0;
  for (Part& part : state.parts) {
    part.ids = ids;
    ids += part.count;
    state.id_counts.send[index(part.peer)] += part.count;
    part.row_elements = rows;
    const EmbeddingSlice& s = state.slice(part.slice);
    rows += s.route == EmbeddingRoute::kSequence ? part.count * s.dim : 0;
  }
  grow(state.sent_ids, ids);
  grow(state.rows_here, rows);
}

double bytes_to_others(const DlrmState::Counts& counts, int rank, double element_bytes) {
  double elements = 0;
  for (std::size_t p = 0; p < counts.send.size(); ++p) {
    elements += p == index(rank) ? 0 : static_cast<double>(counts.send[p]);
  }
  return elements * element_bytes;
}

/// Lengths per peer and slice stand in `lengths`; calls visit(shard, peer, first length, whether
/// whole lengths follow).
template <class Visit>
void for_each_arrival(DlrmState& state, Visit visit) {
  for (std::int64_t peer = 0; peer < state.layout.devices; ++peer) {
    std::int64_t at = state.length_counts.receive_offsets[index(peer)];
    for (auto& of_route : state.shards) {
      for (Shard& shard : of_route) {
        const EmbeddingSlice& s = state.slice(shard.slice);
        if (workloads::is_local(s.route)) {
          continue;
        }
        visit(shard, peer, at);
        at += state.batch * (state.whole_lengths(s) ? 2 : 1);
      }
    }
  }
}

void exchange_lengths(OpContext& c, DlrmState& state) {
  const auto& n = state.length_counts;
  c.collectives->all_to_all_v(state.sent_lengths.data(), n.send, n.send_offsets,
                              state.lengths.data(), n.receive, n.receive_offsets,
                              sizeof(std::int32_t));
  c.bytes_sent = bytes_to_others(n, c.collectives->rank(), sizeof(std::int32_t));
}

void exchange_ids(OpContext& c, DlrmState& state) {
  auto& n = state.id_counts;
  std::fill(n.receive.begin(), n.receive.end(), 0);
  for_each_arrival(state, [&](const Shard&, std::int64_t peer, std::int64_t at) {
    const std::int32_t* lengths = state.lengths.data() + at;
    for (std::int64_t b = 0; b < state.batch; ++b) {
      n.receive[index(peer)] += lengths[b];
    }
  });
  n.set_offsets();
  grow(state.ids, n.receive_offsets.back() + n.receive.back());
  c.collectives->all_to_all_v(state.sent_ids.data(), n.send, n.send_offsets, state.ids.data(),
                              n.receive, n.receive_offsets, sizeof(std::int64_t));
  c.bytes_sent = bytes_to_others(n, c.collectives->rank(), sizeof(std::int64_t));
}

/// Columns each member of the group contributes, and this rank's own.
void pooled_counts(const DlrmState& state, EmbeddingRoute route, bool forward,
                   DlrmState::Counts& n) {
  const bool by_node = route == EmbeddingRoute::kNodeReduce;
  const std::int64_t stride = by_node ? state.layout.node : 1;
  const auto members = index(state.layout.devices / stride);
  const std::vector<std::int64_t>& widths = state.widths[index(static_cast<std::int64_t>(route))];
  const std::int64_t own = state.batch * widths[index(state.rank)];
  for (auto* v : {&n.send, &n.send_offsets, &n.receive, &n.receive_offsets}) {
    v->resize(members);
  }
  for (std::size_t p = 0; p < members; ++p) {
    const std::int64_t theirs = state.batch * widths[p * index(stride)];
    n.send[p] = forward ? own : theirs;
    n.receive[p] = forward ? theirs : own;
  }
}

void sequence_counts(DlrmState& state, bool forward, DlrmState::Counts& n) {
  auto& here = forward ? n.receive : n.send;
  auto& there = forward ? n.send : n.receive;
  for (auto* v : {&n.send, &n.send_offsets, &n.receive, &n.receive_offsets}) {
    v->assign(index(state.layout.devices), 0);
  }
  for (const Part& part : state.parts) {
    const EmbeddingSlice& s = state.slice(part.slice);
    here[index(part.peer)] += s.route == EmbeddingRoute::kSequence ? part.count * s.dim : 0;
  }
  for (const Shard& shard : state.shards_of(EmbeddingRoute::kSequence)) {
    for (std::size_t p = 0; p < there.size(); ++p) {
      there[p] += (shard.peer_begin[p + 1] - shard.peer_begin[p]) * state.slice(shard.slice).dim;
    }
  }
}

void exchange_rows(OpContext& c, DlrmState& state) {
  const auto route = static_cast<EmbeddingRoute>(c.op.shape[2]);
  const bool forward = c.op.phase == Phase::kForward;
  DlrmState::Counts& n = state.row_counts;
  const float* send = nullptr;
  float* receive = nullptr;
  if (route == EmbeddingRoute::kSequence) {
    sequence_counts(state, forward, n);
    send = (forward ? state.rows_there : state.rows_here).data();
    receive = (forward ? state.rows_here : state.rows_there).data();
  } else {
    pooled_counts(state, route, forward, n);
    send = c.input(0).data;
    receive = c.output(0).data;
  }
  n.set_offsets();
  c.collectives->all_to_all_v(send, n.send, n.send_offsets, receive, n.receive, n.receive_offsets,
                              sizeof(float));
  c.bytes_sent = bytes_to_others(n, c.collectives->rank(), sizeof(float));
}

/// Place of a peer's samples in the order of an embedding op (see workloads/dlrm.h).
std::int64_t place_of(const DlrmState& state, std::int64_t peer, std::int64_t order) {
  return order == 1 ? peer : peer % order * (state.layout.devices / order) + peer / order;
}

}  // namespace

void index_pack(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  for (std::size_t s = 0; s < state.layout.slices.size(); ++s) {
    if (!state.parts_of[s].empty()) {
      write_lengths(state, static_cast<std::int32_t>(s),
                    state.local_bags(c, state.layout.slices[s]));
    }
  }
  place_parts(state);
  for (std::size_t s = 0; s < state.layout.slices.size(); ++s) {
    if (!state.parts_of[s].empty()) {
      write_ids(state, static_cast<std::int32_t>(s), state.local_bags(c, state.layout.slices[s]));
    }
  }
}

void index_unpack(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  const std::int64_t batch = state.batch;
  // Bag lengths in place of offsets first, then ids move to where the running sums say.
  for_each_arrival(state, [&](Shard& shard, std::int64_t peer, std::int64_t at) {
    const EmbeddingSlice& s = state.slice(shard.slice);
    const std::int64_t first =
        place_of(state, peer, s.route == EmbeddingRoute::kNodeReduce ? state.layout.node : 1) *
        batch;
    grow(shard.offsets, state.global + 1);
    for (std::int64_t b = 0; b < batch; ++b) {
      shard.offsets[index(first + b + 1)] = state.lengths[index(at + b)];
    }
    if (state.whole_lengths(s)) {
      grow(shard.factors, state.global);
      for (std::int64_t b = 0; b < batch; ++b) {
        shard.factors[index(first + b)] =
            1.0F / static_cast<float>(std::max(1, state.lengths[index(at + batch + b)]));
      }
    }
  });
  for (auto& of_route : state.shards) {
    for (Shard& shard : of_route) {
      if (shard.offsets.empty()) {
        continue;
      }
      shard.offsets[0] = 0;
      for (std::int64_t b = 0; b < state.global; ++b) {
        shard.offsets[index(b + 1)] += shard.offsets[index(b)];
      }
      grow(shard.ids, shard.offsets[index(state.global)]);
    }
  }
  std::int64_t from = 0;
  std::int64_t rows = 0;
  for_each_arrival(state, [&](Shard& shard, std::int64_t peer, std::int64_t) {
    const EmbeddingSlice& s = state.slice(shard.slice);
    const std::int64_t first =
        place_of(state, peer, s.route == EmbeddingRoute::kNodeReduce ? state.layout.node : 1) *
        batch;
    const std::int64_t begin = shard.offsets[index(first)];
    const std::int64_t count = shard.offsets[index(first + batch)] - begin;
    std::copy_n(state.ids.data() + from, count, shard.ids.data() + begin);
    from += count;
    shard.peer_begin[index(peer)] = begin;
    shard.peer_begin[index(peer + 1)] = begin + count;
    shard.row_elements[index(peer)] = rows;
    rows += s.route == EmbeddingRoute::kSequence ? count * s.dim : 0;
  });
  grow(state.rows_there, rows);
}

void all_to_all_v(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  if (c.op.format == Format::kInt32) {
    exchange_lengths(c, state);
  } else if (c.op.format == Format::kInt64) {
    state.id_counts.set_offsets();
    exchange_ids(c, state);
  } else {
    exchange_rows(c, state);
  }
}

}  // namespace stepcast::runtime::cpu
