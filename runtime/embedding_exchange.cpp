#include "runtime/embedding_exchange.h"

#include <algorithm>
#include <numeric>

namespace stepcast::runtime {
namespace {

using workloads::EmbeddingRoute;
using workloads::EmbeddingSlice;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Place of a peer's samples in the order of an embedding op (see workloads/dlrm.h).
std::int64_t place_of(std::int64_t devices, std::int64_t peer, std::int64_t order) {
  return order == 1 ? peer : peer % order * (devices / order) + peer / order;
}

}  // namespace

void EmbeddingExchange::Counts::set_offsets() {
  std::exclusive_scan(send.begin(), send.end(), send_offsets.begin(), std::int64_t{0});
  std::exclusive_scan(receive.begin(), receive.end(), receive_offsets.begin(), std::int64_t{0});
}

double EmbeddingExchange::Counts::bytes_to_others(int own, double element_bytes) const {
  double elements = 0;
  for (std::size_t p = 0; p < send.size(); ++p) {
    elements += p == index(own) ? 0 : static_cast<double>(send[p]);
  }
  return elements * element_bytes;
}

EmbeddingExchange::EmbeddingExchange(const Job& job, std::int32_t its_rank)
    : workload(*job.workload.dlrm()),
      layout(workloads::embedding_layout(job)),
      rank(its_rank),
      batch(job.batch.global / job.devices),
      global(job.batch.global),
      parts_of(layout.slices.size()),
      boundaries(layout.slices.size()),
      widths(workloads::kRoutes),
      shards(workloads::kRoutes),
      length_counts(index(layout.devices)),
      id_counts(index(layout.devices)) {
  for (std::int32_t peer = 0; peer < static_cast<std::int32_t>(layout.devices); ++peer) {
    const std::int64_t first = lengths_sent;
    for (const std::int32_t s : layout.held[index(peer)]) {
      if (!workloads::is_local(slice(s).route)) {
        parts_of[index(s)].push_back(static_cast<std::int32_t>(parts.size()));
        parts.push_back({.slice = s, .peer = peer, .lengths = lengths_sent});
        lengths_sent += batch * (whole_lengths(slice(s)) ? 2 : 1);
      }
    }
    length_counts.send[index(peer)] = lengths_sent - first;
  }
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    const EmbeddingSlice& of = layout.slices[s];
    if (of.row_split() && of.split == Split::kBlock) {
      for (std::size_t i = 0; i <= of.ranks.size(); ++i) {
        boundaries[s].push_back(std::min(static_cast<std::int64_t>(i) * of.block(), of.table_rows));
      }
    }
  }
  for (const EmbeddingRoute route : workloads::kAllRoutes) {
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(layout.devices); ++r) {
      widths[static_cast<std::size_t>(route)].push_back(layout.width(r, route));
    }
  }
  const std::int64_t arriving = length_counts.send[index(rank)];
  std::fill(length_counts.receive.begin(), length_counts.receive.end(), arriving);
  length_counts.set_offsets();
  lengths_received = arriving * layout.devices;
  for (const std::int32_t s : layout.held[index(rank)]) {
    Shard shard;
    shard.slice = s;
    shard.begin.resize(index(layout.devices));
    shard.count.resize(index(layout.devices));
    shard.row_elements.resize(index(layout.devices));
    shards_of(slice(s).route).push_back(std::move(shard));
  }
  for (std::int32_t peer = 0; peer < static_cast<std::int32_t>(layout.devices); ++peer) {
    std::int64_t at = length_counts.receive_offsets[index(peer)];
    for (const EmbeddingRoute route : workloads::kAllRoutes) {
      for (std::size_t i = 0; !workloads::is_local(route) && i < shards_of(route).size(); ++i) {
        const std::int64_t order = route == EmbeddingRoute::kNodeReduce ? layout.node : 1;
        arrivals.push_back({.route = route,
                            .shard = i,
                            .peer = peer,
                            .lengths = at,
                            .place = place_of(layout.devices, peer, order)});
        at += batch * (whole_lengths(slice(shards_of(route)[i].slice)) ? 2 : 1);
      }
    }
  }
}

void EmbeddingExchange::place_parts() {
  std::fill(id_counts.send.begin(), id_counts.send.end(), 0);
  ids_sent = rows_here = 0;
  for (Part& part : parts) {
    part.ids = ids_sent;
    ids_sent += part.count;
    id_counts.send[index(part.peer)] += part.count;
    part.row_elements = rows_here;
    const EmbeddingSlice& s = slice(part.slice);
    rows_here += s.route == EmbeddingRoute::kSequence ? part.count * s.dim : 0;
  }
}

void EmbeddingExchange::place_arrivals() {
  std::fill(id_counts.receive.begin(), id_counts.receive.end(), 0);
  ids_received = rows_there = 0;
  for (Arrival& a : arrivals) {
    a.ids = ids_received;
    ids_received += a.count;
    id_counts.receive[index(a.peer)] += a.count;
    Shard& shard = shards_of(a.route)[a.shard];
    shard.count[index(a.peer)] = a.count;
    shard.row_elements[index(a.peer)] = rows_there;
    rows_there += a.route == EmbeddingRoute::kSequence ? a.count * slice(shard.slice).dim : 0;
  }
  // Within a shard, peers stand in the order of their places.
  std::vector<std::int64_t> by_place(index(layout.devices));
  for (const EmbeddingRoute route : workloads::kAllRoutes) {
    if (workloads::is_local(route)) {
      continue;
    }
    const std::int64_t order = route == EmbeddingRoute::kNodeReduce ? layout.node : 1;
    for (Shard& shard : shards_of(route)) {
      for (std::int64_t peer = 0; peer < layout.devices; ++peer) {
        by_place[index(place_of(layout.devices, peer, order))] = shard.count[index(peer)];
      }
      std::exclusive_scan(by_place.begin(), by_place.end(), by_place.begin(), std::int64_t{0});
      for (std::int64_t peer = 0; peer < layout.devices; ++peer) {
        shard.begin[index(peer)] = by_place[index(place_of(layout.devices, peer, order))];
      }
    }
  }
  id_counts.set_offsets();
}

void EmbeddingExchange::set_pooled_counts(EmbeddingRoute route, bool forward, Counts& n) const {
  const std::int64_t stride = route == EmbeddingRoute::kNodeReduce ? layout.node : 1;
  const auto members = index(layout.devices / stride);
  const std::vector<std::int64_t>& of_route = widths[static_cast<std::size_t>(route)];
  const std::int64_t own = batch * of_route[index(rank)];
  for (auto* v : {&n.send, &n.send_offsets, &n.receive, &n.receive_offsets}) {
    v->resize(members);
  }
  for (std::size_t p = 0; p < members; ++p) {
    const std::int64_t theirs = batch * of_route[p * index(stride)];
    n.send[p] = forward ? own : theirs;
    n.receive[p] = forward ? theirs : own;
  }
  n.set_offsets();
}

void EmbeddingExchange::set_sequence_counts(bool forward, Counts& n) const {
  auto& here = forward ? n.receive : n.send;
  auto& there = forward ? n.send : n.receive;
  for (auto* v : {&n.send, &n.send_offsets, &n.receive, &n.receive_offsets}) {
    v->assign(index(layout.devices), 0);
  }
  for (const Part& part : parts) {
    const EmbeddingSlice& s = slice(part.slice);
    here[index(part.peer)] += s.route == EmbeddingRoute::kSequence ? part.count * s.dim : 0;
  }
  for (const Shard& shard : shards[static_cast<std::size_t>(EmbeddingRoute::kSequence)]) {
    for (std::size_t p = 0; p < there.size(); ++p) {
      there[p] += shard.count[p] * slice(shard.slice).dim;
    }
  }
  n.set_offsets();
}

}  // namespace stepcast::runtime
