#include "runtime/cuda/kernels/row_selection.h"

#include <cub/device/device_radix_sort.cuh>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/owner.h"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBagLanes = 8;

using Key = std::uint32_t;

unsigned blocks_for(Index threads) {
  return static_cast<unsigned>(internal::ceil_div(threads, kThreads));
}

__device__ inline Index bag_begin(const Bags& bags, Index bag) {
  return bags.offsets != nullptr ? bags.offsets[bag] : bag;
}

/// Row of a lookup in the range; negative or beyond it if it does not fall in.
__device__ inline Index row_in(const RowRange& range, Index row) {
  return (range.remap != nullptr ? static_cast<Index>(range.remap[row]) : row) - range.first;
}

/// Eight lanes a bag, eight lookups a turn. visit(bag, row, whether it falls in, lanes of the turn
/// whose rows do, how many of them come before this one).
template <class Visit>
__device__ void for_each_in_range(const Bags& bags, const RowRange& range, Visit visit) {
  const Index bag = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / kBagLanes;
  const int lane = static_cast<int>(threadIdx.x) % kBagLanes;
  if (bag >= bags.count) {
    return;
  }
  const unsigned group = 0xFFU << (threadIdx.x % 32 / kBagLanes * kBagLanes);
  const Index end = bag_begin(bags, bag + 1);
  for (Index first = bag_begin(bags, bag); first < end; first += kBagLanes) {
    Index row = -1;
    if (first + lane < end) {
      row = row_in(range, bags.indices[first + lane]);
    }
    const bool inside = row >= 0 && row < range.rows;
    const unsigned all = __ballot_sync(group, inside);
    visit(bag, row, inside, all, __popc(all & ((1U << (threadIdx.x % 32)) - 1U)));
  }
}

__global__ void count_kernel(Bags bags, RowRange range, std::int32_t* lengths) {
  std::int32_t sum = 0;
  for_each_in_range(bags, range,
                    [&](Index, Index, bool, unsigned all, int) { sum += __popc(all); });
  const Index thread = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread / kBagLanes < bags.count && thread % kBagLanes == 0) {
    lengths[thread / kBagLanes] = sum;
  }
}

__global__ void fill_kernel(Bags bags, RowRange range, const std::int64_t* offsets,
                            std::int64_t* out) {
  Index written = 0;
  for_each_in_range(bags, range, [&](Index bag, Index row, bool inside, unsigned all, int rank) {
    if (inside) {
      out[offsets[bag] + written + rank] = row;
    }
    written += __popc(all);
  });
}

/// keys[i]: owner and row of lookup i; `pad` beyond the last.
__global__ void keys_kernel(Bags bags, RowSplit split, Index part_rows, Key pad, Key* keys,
                            std::uint32_t* positions) {
  const Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= bags.lookups) {
    return;
  }
  Key key = pad;
  if (i < bag_begin(bags, bags.count)) {
    const internal::Owner owner =
        internal::owner_of(bags.indices[i], split.parts, split.boundaries);
    key = static_cast<Key>(owner.part * part_rows + owner.row);
  }
  keys[i] = key;
  positions[i] = static_cast<std::uint32_t>(i);
}

/// heads[i] = 1 where a run of equal keys begins.
__global__ void heads_kernel(const Key* keys, Index count, Key pad, std::int32_t* heads) {
  const Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) {
    heads[i] = keys[i] != pad && (i == 0 || keys[i] != keys[i - 1]) ? 1 : 0;
  }
}

/// runs[i + 1]: runs that have begun up to sorted position i.
__global__ void scatter_kernel(Bags bags, const Key* keys, const std::uint32_t* positions,
                               const std::int32_t* heads, const std::int64_t* runs, Key pad,
                               DistinctRows out) {
  const Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= bags.lookups || keys[i] == pad) {
    return;
  }
  const std::int64_t run = runs[i + 1] - 1;
  out.inverse[positions[i]] = run;
  if (heads[i] != 0) {
    out.rows[run] = bags.indices[positions[i]];
  }
}

__global__ void deal_kernel(const std::int64_t* count, Index bags, std::int64_t* offsets) {
  const Index b = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (b <= bags) {
    offsets[b] = *count * b / bags;
  }
}

int bits_of(Key largest) {
  int bits = 1;
  while (bits < 32 && (largest >> bits) > 0) {
    ++bits;
  }
  return bits;
}

cudaError_t sort(void* memory, std::size_t& bytes, cub::DoubleBuffer<Key>& keys,
                 cub::DoubleBuffer<std::uint32_t>& positions, Index count, Key largest,
                 cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, positions, static_cast<int>(count), 0,
                                         bits_of(largest), stream);
}

/// Pieces of the workspace of distinct_rows, 256-byte aligned.
struct Pieces {
  std::size_t keys[2], positions[2], heads, runs, library, library_bytes, total;
};

Pieces pieces_of(Index lookups) {
  Pieces p{};
  const auto take = [&p](std::size_t bytes) {
    const std::size_t at = p.total;
    p.total += (bytes + 255) / 256 * 256;
    return at;
  };
  const auto n = static_cast<std::size_t>(lookups);
  for (int i = 0; i < 2; ++i) {
    p.keys[i] = take(n * sizeof(Key));
    p.positions[i] = take(n * sizeof(std::uint32_t));
  }
  p.heads = take(n * sizeof(std::int32_t));
  p.runs = take((n + 1) * sizeof(std::int64_t));
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<std::uint32_t> positions;
  if (sort(nullptr, p.library_bytes, keys, positions, lookups, ~Key{0}, nullptr) != cudaSuccess) {
    internal::check_launch("distinct_rows (size of its workspace)");
  }
  const std::size_t scan = lengths_to_offsets_workspace(lookups);
  p.library_bytes = scan > p.library_bytes ? scan : p.library_bytes;
  p.library = take(p.library_bytes);
  return p;
}

/// One warp a row.
template <class Word>
__global__ void move_kernel(RowParts parts, const RowMove* moves, Index count, bool into_slots) {
  const Index i = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (i >= count) {
    return;
  }
  const RowMove m = moves[i];
  for (int p = 0; p < parts.count; ++p) {
    const RowPart& part = parts.at[p];
    const Index words = part.bytes / static_cast<Index>(sizeof(Word));
    Word* row = static_cast<Word*>(part.table) + m.row * words;
    Word* slot = static_cast<Word*>(part.slots) + m.slot * words;
    const Word* from = into_slots ? row : slot;
    Word* to = into_slots ? slot : row;
    for (Index w = threadIdx.x % 32; w < words; w += 32) {
      to[w] = from[w];
    }
  }
}

}  // namespace

void count_in_range(const Bags& bags, const RowRange& range, std::int32_t* lengths,
                    cudaStream_t stream) {
  if (bags.count > 0) {
    internal::launch("count_in_range", count_kernel, {blocks_for(bags.count * kBagLanes), kThreads},
                     stream, bags, range, lengths);
  }
}

void fill_in_range(const Bags& bags, const RowRange& range, const std::int64_t* offsets,
                   std::int64_t* out, cudaStream_t stream) {
  if (bags.count > 0) {
    internal::launch("fill_in_range", fill_kernel, {blocks_for(bags.count * kBagLanes), kThreads},
                     stream, bags, range, offsets, out);
  }
}

std::size_t distinct_rows_workspace(const Bags& bags) { return pieces_of(bags.lookups).total; }

void distinct_rows(const Bags& bags, const RowSplit& split, Index part_rows,
                   const DistinctRows& out, Workspace workspace, cudaStream_t stream) {
  internal::require(split.parts * part_rows < Index{~Key{0}},
                    "distinct rows of fewer than 2^32 - 1 rows");
  const Pieces p = pieces_of(bags.lookups);
  internal::require_workspace(workspace.bytes, p.total, "distinct_rows");
  const auto piece = [&](std::size_t at) { return static_cast<char*>(workspace.data) + at; };
  const auto pad = static_cast<Key>(split.parts * part_rows);
  auto* runs = reinterpret_cast<std::int64_t*>(piece(p.runs));
  auto* heads = reinterpret_cast<std::int32_t*>(piece(p.heads));
  cub::DoubleBuffer<Key> keys(reinterpret_cast<Key*>(piece(p.keys[0])),
                              reinterpret_cast<Key*>(piece(p.keys[1])));
  cub::DoubleBuffer<std::uint32_t> positions(
      reinterpret_cast<std::uint32_t*>(piece(p.positions[0])),
      reinterpret_cast<std::uint32_t*>(piece(p.positions[1])));
  const unsigned blocks = blocks_for(bags.lookups);
  if (bags.lookups > 0) {
    internal::launch("distinct_rows: keys", keys_kernel, {blocks, kThreads}, stream, bags, split,
                     part_rows, pad, keys.Current(), positions.Current());
    std::size_t bytes = p.library_bytes;
    const cudaError_t sorted =
        sort(piece(p.library), bytes, keys, positions, bags.lookups, pad, stream);
    internal::check_launch("distinct_rows: sort");
    internal::require(sorted == cudaSuccess, "a sort that fails leaves an error");
    internal::launch("distinct_rows: runs", heads_kernel, {blocks, kThreads}, stream,
                     keys.Current(), bags.lookups, pad, heads);
  }
  lengths_to_offsets(heads, bags.lookups, 0, runs, {piece(p.library), p.library_bytes}, stream);
  if (bags.lookups > 0) {
    internal::launch("distinct_rows: rows", scatter_kernel, {blocks, kThreads}, stream, bags,
                     keys.Current(), positions.Current(), heads, runs, pad, out);
  }
  if (bags.count > 0) {
    internal::launch("distinct_rows: bags", deal_kernel, {blocks_for(bags.count + 1), kThreads},
                     stream, runs + bags.lookups, bags.count, out.offsets);
  }
}

void move_rows(const RowParts& parts, const RowMove* moves, Index count, bool into_slots,
               cudaStream_t stream) {
  if (count == 0) {
    return;
  }
  Index widths = 16;  // the largest word that divides every row and every address
  for (int p = 0; p < parts.count; ++p) {
    const RowPart& part = parts.at[p];
    const auto all = static_cast<std::uintptr_t>(part.bytes) |
                     reinterpret_cast<std::uintptr_t>(part.table) |
                     reinterpret_cast<std::uintptr_t>(part.slots);
    while (all % static_cast<std::uintptr_t>(widths) != 0) {
      widths /= 2;
    }
  }
  const auto run = [&](auto type) {
    internal::launch("move_rows", move_kernel<typename decltype(type)::type>,
                     {blocks_for(count * 32), kThreads}, stream, parts, moves, count, into_slots);
  };
  if (widths == 16) {
    run(internal::Type<uint4>{});
  } else if (widths >= 4) {
    run(internal::Type<unsigned>{});
  } else {
    internal::require(widths == 2, "rows of whole elements");
    run(internal::Type<unsigned short>{});
  }
}

}  // namespace stepcast::runtime::cuda::kernels
