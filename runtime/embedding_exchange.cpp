#include "runtime/embedding_exchange.h"

#include <algorithm>

#include "core/access/access.h"
#include "core/access/row_order.h"
#include "core/error.h"
#include "core/numbers.h"

namespace stepcast::runtime {
namespace {

/// Routes whose rows travel unpooled, in the order in which they stand in buffers.
constexpr auto kSequences = [] {
  std::array<EmbeddingRoute, 1 + kMostGroupSizes> all{EmbeddingRoute::kSequence};
  for (std::size_t level = 0; level < kMostGroupSizes; ++level) {
    all[level + 1] = at_level(EmbeddingRoute::kGroupSequence, level);
  }
  return all;
}();

}  // namespace

RowRemaps row_remaps(const ExecutionGraph& graph) {
  const std::vector<EmbeddingTable>& tables = graph.inputs.tables;
  RowRemaps remaps(tables.size());
  for (const EmbeddingSlice& s : graph.placement->slices) {
    const auto t = static_cast<std::size_t>(s.table);
    std::vector<std::uint32_t>& remap = remaps[t];
    if (!s.remapped() || !remap.empty() || tables[t].access == nullptr) {
      continue;
    }
    if (s.table_rows > std::int64_t{1} << 32) {
      throw InputError(fmt::format("plan: tables[{}].row_order", t),
                       fmt::format("'{}' has {} rows; the runtime remaps up to 2^32",
                                   tables[t].name, s.table_rows));
    }
    remap.resize(static_cast<std::size_t>(s.table_rows));
    for (std::int64_t rank = 0; rank < s.table_rows; ++rank) {
      const std::int64_t row =
          s.order ? s.order->row_at(rank) : tables[t].access->row_of_rank(rank);
      remap[static_cast<std::size_t>(row)] = static_cast<std::uint32_t>(rank);
    }
  }
  return remaps;
}

/// Place of a peer's samples in the order of an embedding op (see workloads/dlrm/dlrm.h).
std::int64_t EmbeddingExchange::place_of(std::int32_t peer, EmbeddingRoute route) const {
  if (is_node_reduce(route)) {
    const std::int64_t size = layout.group_of(route);
    return peer % size * (layout.devices / size) + peer / size;
  }
  return peer - layout.peers(route, rank)[0];
}

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

EmbeddingExchange::EmbeddingExchange(const ExecutionGraph& graph, std::int32_t its_rank)
    : tables(graph.inputs.tables),
      layout(*graph.placement),
      rank(its_rank),
      batch(graph.inputs.batch.global / layout.devices),
      global(graph.inputs.batch.global),
      parts_of(layout.slices.size()),
      boundaries(layout.slices.size()),
      widths(kRoutes),
      shards(kRoutes),
      length_counts(index(layout.devices)),
      id_counts(index(layout.devices)) {
  for (std::int32_t peer = 0; peer < static_cast<std::int32_t>(layout.devices); ++peer) {
    const std::int64_t first = lengths_sent;
    for (const std::int32_t s : layout.held[index(peer)]) {
      if (!is_local(slice(s).route) && slice(s).serves(peer, rank)) {
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
      for (std::int64_t i = 0; i <= of.members(); ++i) {
        boundaries[s].push_back(of.row_rule().part(i).first - of.first_row);
      }
    }
  }
  for (const EmbeddingRoute route : kAllRoutes) {
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(layout.devices); ++r) {
      widths[static_cast<std::size_t>(route)].push_back(layout.uses(route) ? layout.width(r, route)
                                                                           : 0);
    }
  }
  for (const std::int32_t s : layout.held[index(rank)]) {
    Shard shard;
    shard.slice = s;
    shard.begin.resize(index(layout.devices));
    shard.count.resize(index(layout.devices));
    shard.row_elements.resize(index(layout.devices));
    shard.bags.resize(index(layout.devices));
    shard.first_bag.resize(index(layout.devices));
    shards_of(slice(s).route).push_back(std::move(shard));
  }
  for (std::int32_t peer = 0; peer < static_cast<std::int32_t>(layout.devices); ++peer) {
    const std::int64_t first = lengths_received;
    for (const EmbeddingRoute route : kAllRoutes) {
      for (std::size_t i = 0; !is_local(route) && i < shards_of(route).size(); ++i) {
        const EmbeddingSlice& of = slice(shards_of(route)[i].slice);
        if (!of.serves(rank, peer)) {
          continue;
        }
        arrivals.push_back(
            {.route = route, .shard = i, .peer = peer, .lengths = lengths_received, .bags = batch});
        lengths_received += batch * (whole_lengths(of) ? 2 : 1);
      }
    }
    length_counts.receive[index(peer)] = lengths_received - first;
  }
  length_counts.set_offsets();
}

void EmbeddingExchange::place_parts() {
  std::fill(id_counts.send.begin(), id_counts.send.end(), 0);
  ids_sent = rows_here = 0;
  for (Part& part : parts) {
    part.ids = ids_sent;
    part.rows = slice(part.slice).pools_lists_once() ? part.rows : part.count;
    ids_sent += part.count;
    id_counts.send[index(part.peer)] += part.count;
  }
  for (const EmbeddingRoute route : kSequences) {
    for (Part& part : parts) {
      if (slice(part.slice).route == route) {
        part.row_elements = rows_here;
        rows_here += part.rows * slice(part.slice).dim;
      }
    }
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
    shard.bags[index(a.peer)] = a.bags;
  }
  for (const EmbeddingRoute route : kSequences) {
    for (const Arrival& a : arrivals) {
      if (a.route == route) {
        Shard& shard = shards_of(route)[a.shard];
        shard.row_elements[index(a.peer)] = rows_there;
        rows_there += rows_of(shard, index(a.peer)) * slice(shard.slice).dim;
      }
    }
  }
  // Within a shard, peers stand in the order of their places.
  for (const EmbeddingRoute route : kAllRoutes) {
    if (is_local(route) || shards_of(route).empty()) {
      continue;
    }
    const auto [first, end] = layout.peers(route, rank);
    std::vector<std::int64_t> by_place(index(end - first));
    const auto add_up = [&](const std::vector<std::int64_t>& of, std::vector<std::int64_t>& sums) {
      for (std::int32_t peer = first; peer < end; ++peer) {
        by_place[index(place_of(peer, route))] = of[index(peer)];
      }
      std::exclusive_scan(by_place.begin(), by_place.end(), by_place.begin(), std::int64_t{0});
      for (std::int32_t peer = first; peer < end; ++peer) {
        sums[index(peer)] = by_place[index(place_of(peer, route))];
      }
    };
    for (Shard& shard : shards_of(route)) {
      add_up(shard.count, shard.begin);
      add_up(shard.bags, shard.first_bag);
    }
  }
  id_counts.set_offsets();
}

void EmbeddingExchange::set_pooled_counts(EmbeddingRoute route, bool forward, Counts& n) const {
  const std::int64_t stride = is_node_reduce(route) ? layout.group_of(route) : 1;
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

void EmbeddingExchange::set_sequence_counts(bool forward, Counts& n, EmbeddingRoute route) const {
  auto& here = forward ? n.receive : n.send;
  auto& there = forward ? n.send : n.receive;
  const auto [first, end] = layout.peers(route, rank);
  for (auto* v : {&n.send, &n.send_offsets, &n.receive, &n.receive_offsets}) {
    v->assign(index(end - first), 0);
  }
  // Routes stand one after the other in the buffers of rows.
  std::int64_t before_here = 0;
  std::int64_t before_there = 0;
  for (const Part& part : parts) {
    const EmbeddingSlice& s = slice(part.slice);
    const std::int64_t elements = part.rows * s.dim;
    if (s.route == route) {
      here[index(part.peer - first)] += elements;
    } else if (is_sequence(s.route) && s.route < route) {
      before_here += elements;
    }
  }
  for (const EmbeddingRoute r : kSequences) {
    for (const Shard& shard : shards[static_cast<std::size_t>(r)]) {
      for (std::size_t p = 0; p < shard.count.size(); ++p) {
        const std::int64_t elements = rows_of(shard, p) * slice(shard.slice).dim;
        if (r == route && elements > 0) {
          there[p - index(first)] += elements;
        } else if (r < route) {
          before_there += elements;
        }
      }
    }
  }
  n.set_offsets();
  for (std::int64_t& offset : forward ? n.receive_offsets : n.send_offsets) {
    offset += before_here;
  }
  for (std::int64_t& offset : forward ? n.send_offsets : n.receive_offsets) {
    offset += before_there;
  }
}

}  // namespace stepcast::runtime
