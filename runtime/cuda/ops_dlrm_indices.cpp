#include <algorithm>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/kernels/distinct_lists.h"
#include "runtime/cuda/kernels/elementwise.h"
#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/nccl_exchange.h"
#include "runtime/cuda/ops_dlrm.h"

#include "core/numbers.h"

namespace stepcast::runtime::cuda {
namespace {

using Arrival = EmbeddingExchange::Arrival;
using Part = EmbeddingExchange::Part;

/// Copies of lists, collected and enqueued together: few launches however many lists there are. The
/// words of 4 bytes are moved as they are; a long list is many rows, which warps share.
class ListCopies {
 public:
  template <class T>
  void add(const T* from, T* to, std::int64_t count) {
    const std::int64_t words = count * static_cast<std::int64_t>(sizeof(T) / 4);
    const std::int64_t rows = words / kRow;
    add_rows(from, to, 0, rows, kRow);
    add_rows(from, to, rows * kRow, 1, words - rows * kRow);
  }
  void enqueue(cudaStream_t stream) {
    if (!blocks_.empty()) {
      kernels::copy_blocks(blocks_.data(), static_cast<kernels::Index>(blocks_.size()), stream);
    }
  }

 private:
  static constexpr std::int64_t kRow = 1024;
  void add_rows(const void* from, void* to, std::int64_t first, std::int64_t rows,
                std::int64_t columns) {
    if (rows > 0 && columns > 0) {
      blocks_.push_back({{static_cast<const char*>(from) + 4 * first, Format::kFp32, rows, columns},
                         {static_cast<char*>(to) + 4 * first, Format::kFp32, rows, columns}});
    }
  }
  std::vector<kernels::BlockCopy> blocks_;
};

template <class Visit>
void for_each_travelling_slice(const DlrmState& state, Visit visit) {
  for (std::size_t s = 0; s < state.layout.slices.size(); ++s) {
    if (!state.parts_of[s].empty()) {
      visit(s);
    }
  }
}

/// Lengths of every part's bags: counted slice by slice, then put in the order in which they
/// travel. In distinct lists, places behind the last are marked.
void write_lengths(const OpContext& c, DlrmState& state) {
  const std::int64_t batch = state.batch;
  auto* by_slice = state.slice_lengths.as<std::int32_t>();
  auto* whole = state.whole.as<std::int32_t>();
  ListCopies copies;
  for_each_travelling_slice(state, [&](std::size_t s) {
    const auto id = static_cast<std::int32_t>(s);
    state.select_rows(c, id);
    const std::size_t first = state.first_slice_list[s] * index(batch);
    std::int32_t* counted = by_slice + first;
    kernels::count_by_owner(state.slice_bags(c, id), state.row_split(id), counted, c.stream);
    const bool with_whole = state.whole_lengths(state.layout.slices[s]);
    std::int32_t* sizes = whole + s * index(batch);
    if (with_whole) {
      kernels::bag_lengths(state.pooled_bags(c, id), sizes, c.stream);
    }
    const std::int32_t* told = counted;
    if (state.layout.slices[s].pools_lists_once()) {
      const auto* lists = state.selections[s].lists.as<std::int64_t>();
      std::int32_t* marked = state.marked.as<std::int32_t>() + first;
      const auto mark = [&](const std::int32_t* from, std::size_t parts, std::int32_t* to) {
        kernels::mark_absent(from, static_cast<kernels::Index>(parts), batch, lists,
                             DlrmState::kNoBag, to, c.stream);
      };
      mark(counted, state.parts_of[s].size(), marked);
      mark(sizes, with_whole ? 1 : 0, sizes);
      told = marked;
    }
    for (std::size_t holder = 0; holder < state.parts_of[s].size(); ++holder) {
      const auto p = index(state.parts_of[s][holder]);
      const Part& part = state.parts[p];
      copies.add(counted + holder * index(batch),
                 state.part_lengths.as<std::int32_t>() + p * index(batch), batch);
      if (state.sends_more) {
        std::int32_t* to = state.sent_lengths.as<std::int32_t>() + part.lengths;
        copies.add(told + holder * index(batch), to, batch);
        copies.add<std::int32_t>(with_whole ? sizes : nullptr, to + batch, with_whole ? batch : 0);
      }
    }
  });
  copies.enqueue(c.stream);
}

/// Local rows of every part, where the running sums of the lengths say.
void write_ids(const OpContext& c, DlrmState& state) {
  const std::int64_t batch = state.batch;
  const auto bags = static_cast<kernels::Index>(state.parts.size()) * batch;
  auto* offsets = state.part_offsets.as<std::int64_t>();
  kernels::lengths_to_offsets(state.part_lengths.as<std::int32_t>(), bags, 0, offsets,
                              c.workspace(kernels::lengths_to_offsets_workspace(bags)), c.stream);
  ListCopies copies;
  auto* starts = state.slice_starts.as<std::int64_t>();
  std::size_t lookups = 0;
  for_each_travelling_slice(state, [&](std::size_t s) {
    for (std::size_t holder = 0; holder < state.parts_of[s].size(); ++holder) {
      copies.add(offsets + index(state.parts_of[s][holder]) * index(batch),
                 starts + (state.first_slice_list[s] + holder) * index(batch), batch);
    }
    lookups += index(state.local_bags(c, state.layout.slices[s]).lookups);
  });
  copies.enqueue(c.stream);
  auto* ids = state.sent_ids.reserve_of<std::int64_t>(lookups);  // each goes to one holder
  for_each_travelling_slice(state, [&](std::size_t s) {
    const auto id = static_cast<std::int32_t>(s);
    kernels::fill_by_owner(state.slice_bags(c, id), state.row_split(id),
                           starts + state.first_slice_list[s] * index(batch), ids, c.stream);
  });
}

void exchange_lengths(OpContext& c, DlrmState& state) {
  const auto& n = state.length_counts;
  all_to_all_v(*c.communicator, state.travelling_lengths().data(), n.send, state.lengths.data(),
               n.receive, ncclInt32, sizeof(std::int32_t), c.stream);
  c.bytes_sent = n.bytes_to_others(c.communicator->rank(), sizeof(std::int32_t));
}

/// The host learns how many bags and ids go where; it waits for the device here, as every trainer
/// does.
void learn_counts(OpContext& c, DlrmState& state) {
  const std::size_t parts = state.parts.size();
  const std::size_t all = parts + state.arrivals.size();
  auto* ids = state.counts.as<std::int64_t>();
  std::int64_t* bags = ids + all;
  kernels::segment_sums(state.travelling_lengths().as<std::int32_t>(),
                        state.part_firsts.as<std::int64_t>(), static_cast<kernels::Index>(parts),
                        state.batch, ids, bags, c.stream);
  kernels::segment_sums(state.lengths.as<std::int32_t>(), state.arrival_firsts.as<std::int64_t>(),
                        static_cast<kernels::Index>(all - parts), state.batch, ids + parts,
                        bags + parts, c.stream);
  const auto* host = state.host_counts.as<std::int64_t>();
  check(cudaMemcpyAsync(state.host_counts.data(), ids, 2 * all * sizeof(std::int64_t),
                        cudaMemcpyDeviceToHost, c.stream),
        "cudaMemcpyAsync of list sizes");
  c.wait_for_stream();
  for (std::size_t p = 0; p < parts; ++p) {
    state.parts[p].count = host[p];
    state.parts[p].rows = host[all + p];
  }
  for (std::size_t a = 0; a < state.arrivals.size(); ++a) {
    state.arrivals[a].count = host[parts + a];
    state.arrivals[a].bags = host[all + parts + a];
  }
  state.place_parts();
  state.place_arrivals();
}

void exchange_ids(OpContext& c, DlrmState& state) {
  learn_counts(c, state);
  const auto& n = state.id_counts;
  auto* received = state.ids.reserve_of<std::int64_t>(index(state.ids_received));
  all_to_all_v(*c.communicator, state.sent_ids.data(), n.send, received, n.receive, ncclInt64,
               sizeof(std::int64_t), c.stream);
  c.bytes_sent = n.bytes_to_others(c.communicator->rank(), sizeof(std::int64_t));
}

void exchange_rows(OpContext& c, DlrmState& state) {
  const auto route = c.op.as<CollectiveAttributes>().route;
  const bool forward = c.op.phase == Phase::kForward;
  EmbeddingExchange::Counts& n = state.row_counts;
  const Format format = c.input(0).format;
  const std::size_t element = stored_bytes(format);
  const void* send = c.input(0).data;
  void* receive = c.output(0).data;
  if (is_sequence(route)) {
    state.set_sequence_counts(forward, n, route);
    auto* here = static_cast<char*>(state.sent_rows.reserve(index(state.rows_here) * element));
    auto* there = static_cast<char*>(state.shard_rows.reserve(index(state.rows_there) * element));
    // Routes stand one after the other in the buffers of rows.
    send = (forward ? there : here) + index(n.send_offsets.front()) * element;
    receive = (forward ? here : there) + index(n.receive_offsets.front()) * element;
  } else {
    state.set_pooled_counts(route, forward, n);
  }
  all_to_all_v(*c.communicator, send, n.send, receive, n.receive, nccl_type(format), element,
               c.stream);
  c.bytes_sent = n.bytes_to_others(c.communicator->rank(), static_cast<double>(element));
}

}  // namespace

void index_pack(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  write_lengths(c, state);
  write_ids(c, state);
}

void index_unpack(OpContext& c) {
  DlrmState& state = dlrm_state(c);
  const std::int64_t batch = state.batch;
  const auto* received = state.lengths.as<std::int32_t>();
  // Lengths of each shard's bags in the order of its embedding op stand in scratch memory first.
  std::vector<std::pair<EmbeddingRoute, std::size_t>> all;
  for (const EmbeddingRoute route : kAllRoutes) {
    for (std::size_t i = 0; !is_local(route) && i < state.shards_of(route).size(); ++i) {
      all.emplace_back(route, i);
    }
  }
  std::int64_t most = 0;  // bags that reach a shard
  for (const auto& [route, i] : all) {
    most = std::max(most, EmbeddingExchange::bags_of(state.shards_of(route)[i]));
  }
  const std::size_t each = (index(most) * sizeof(std::int32_t) + 255) / 256 * 256;
  const std::size_t sums = kernels::lengths_to_offsets_workspace(most);
  const kernels::Workspace work = c.workspace(all.size() * each + sums);
  const auto ordered = [&](EmbeddingRoute route, std::size_t shard) {
    const auto at = std::find(all.begin(), all.end(), std::pair(route, shard)) - all.begin();
    return reinterpret_cast<std::int32_t*>(static_cast<char*>(work.data) + index(at) * each);
  };
  ListCopies lengths;
  ListCopies ids;
  for (const Arrival& a : state.arrivals) {
    const auto& shard = state.shards_of(a.route)[a.shard];
    lengths.add(received + a.lengths, ordered(a.route, a.shard) + shard.first_bag[index(a.peer)],
                a.bags);
  }
  lengths.enqueue(c.stream);
  for (const auto& [route, i] : all) {
    DlrmState::Lists& lists = state.lists[static_cast<std::size_t>(route)][i];
    const auto& shard = state.shards_of(route)[i];
    const std::int64_t bags = EmbeddingExchange::bags_of(shard);
    lists.ids.reserve_of<std::int64_t>(index(state.shard_bags(route, i).lookups));
    kernels::lengths_to_offsets(
        ordered(route, i), bags, 0, lists.offsets.reserve_of<std::int64_t>(index(bags) + 1),
        {static_cast<char*>(work.data) + all.size() * each, work.bytes - all.size() * each},
        c.stream);
    if (state.whole_lengths(state.slice(shard.slice))) {
      lists.factors.reserve_of<float>(index(bags));
    }
  }
  for (const Arrival& a : state.arrivals) {
    DlrmState::Lists& lists = state.lists[static_cast<std::size_t>(a.route)][a.shard];
    const auto& shard = state.shards_of(a.route)[a.shard];
    ids.add(state.ids.as<std::int64_t>() + a.ids,
            lists.ids.as<std::int64_t>() + shard.begin[index(a.peer)], a.count);
    if (state.whole_lengths(state.slice(shard.slice))) {
      kernels::mean_factors(received + a.lengths + batch, a.bags,
                            lists.factors.as<float>() + shard.first_bag[index(a.peer)], c.stream);
    }
  }
  ids.enqueue(c.stream);
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

}  // namespace stepcast::runtime::cuda
