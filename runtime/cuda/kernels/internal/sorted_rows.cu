#include "runtime/cuda/kernels/internal/sorted_rows.h"

#include <cub/device/device_radix_sort.cuh>

#include "runtime/cuda/kernels/internal/sorted_rows.cuh"

namespace stepcast::runtime::cuda::kernels::internal {
namespace {

constexpr unsigned kLongBlocks = 256;

template <class T, int N, int G, int V>
void launch_tiles(const Update& u, const Key* keys, const std::uint32_t* slots, Key pad,
                  cudaStream_t stream) {
  constexpr int kU = V == 1 ? 4 : V == 2 ? 2 : 1;
  const auto blocks = static_cast<unsigned>(ceil_div(u.tiles * G, kRowThreads));
  launch("row update", tile_kernel<T, N, G, V, kU>, {blocks, kRowThreads}, stream, u, keys, slots,
         pad);
}

template <int N, int G, int V>
void launch_crossing(const Update& u, const Key* keys, Key pad, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(u.tiles * G, kRowThreads));
  launch("row update across tiles", crossing_kernel<N, G, V>, {blocks, kRowThreads}, stream, u,
         keys, pad);
  if (u.tiles > kLongRunTiles) {
    constexpr Index kSharedFloats = 12 * 1024 - 256;
    Index threads = kLongThreads;
    while (threads > 32 && threads / G * u.dim > kSharedFloats) {
      threads /= 2;
    }
    const std::size_t shared = static_cast<std::size_t>(threads / G * u.dim) * sizeof(float);
    launch("row update of long runs", long_run_kernel<N, G, V>,
           {kLongBlocks, static_cast<unsigned>(threads), shared}, stream, u, keys);
  }
}

/// Calls visit(N, G, V) with the lanes that fit rows of `dim`.
template <class Visit>
void with_lanes(Index dim, bool packed, Visit visit) {
  const auto use = [&](auto n, auto g, auto v) { visit(n, g, v); };
  using std::integral_constant;
  constexpr integral_constant<int, 1> k1;
  constexpr integral_constant<int, 2> k2;
  constexpr integral_constant<int, 4> k4;
  constexpr integral_constant<int, 8> k8;
  constexpr integral_constant<int, 16> k16;
  constexpr integral_constant<int, 32> k32;
  if (!packed) {
    require(dim <= 256, "rows that cannot be read in packs have up to 256 elements");
    use(k1, k32, k8);
  } else if (dim <= 32) {
    use(k4, k8, k1);
  } else if (dim <= 64) {
    use(k4, k16, k1);
  } else if (dim <= 128) {
    use(k4, k32, k1);
  } else if (dim <= 256) {
    use(k4, k32, k2);
  } else {
    use(k4, k32, k8);
  }
}

void launch_all(const Update& u, const Key* keys, const std::uint32_t* slots, Key pad, bool packed,
                cudaStream_t stream) {
  with_element(u.gradient, [&](auto type) {
    using T = typename decltype(type)::type;
    with_lanes(u.dim, packed, [&](auto n, auto g, auto v) {
      launch_tiles<T, decltype(n)::value, decltype(g)::value, decltype(v)::value>(u, keys, slots,
                                                                                  pad, stream);
    });
  });
  with_lanes(u.dim, packed, [&](auto n, auto g, auto v) {
    launch_crossing<decltype(n)::value, decltype(g)::value, decltype(v)::value>(u, keys, pad,
                                                                                stream);
  });
}

int bits_of(Index x) {
  int bits = 1;
  while (bits < 63 && (Index{1} << bits) <= x) {
    ++bits;
  }
  return bits;
}

/// Pieces of the workspace, 256-byte aligned.
struct Layout {
  std::size_t keys[2], slots[2], partial, long_tiles, long_count, sort, sort_bytes, total;
};

cudaError_t sort(void* memory, std::size_t& bytes, cub::DoubleBuffer<Key>& keys,
                 cub::DoubleBuffer<std::uint32_t>& slots, Index pairs, Index rows,
                 cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, slots, static_cast<int>(pairs), 0,
                                         bits_of(rows), stream);
}

Layout layout_of(Index pairs, Index rows, Index dim) {
  Layout l{};
  std::size_t next = 0;
  const auto take = [&next](std::size_t bytes) {
    const std::size_t at = next;
    next += (bytes + 255) / 256 * 256;
    return at;
  };
  const auto n = static_cast<std::size_t>(pairs);
  const auto tiles = static_cast<std::size_t>(ceil_div(pairs, tile_size(pairs)));
  for (int i = 0; i < 2; ++i) {
    l.keys[i] = take(n * sizeof(Key));
    l.slots[i] = take(n * sizeof(std::uint32_t));
  }
  l.partial = take(2 * tiles * static_cast<std::size_t>(dim) * sizeof(float));
  l.long_tiles = take(tiles * sizeof(Index));
  l.long_count = take(sizeof(unsigned));
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<std::uint32_t> slots;
  if (sort(nullptr, l.sort_bytes, keys, slots, pairs, rows, nullptr) != cudaSuccess) {
    check_launch("radix sort (size of its workspace)");
  }
  l.sort = take(l.sort_bytes);
  l.total = next;
  return l;
}

}  // namespace

std::size_t sorted_rows_workspace(Index pairs, Index rows, Index dim) {
  return pairs == 0 ? 0 : layout_of(pairs, rows, dim).total;
}

void update_sorted_rows(const SortedTables& tables, Format gradient, Format weights, Index pairs,
                        Index rows, Index dim, bool packed, const RowRule& rule,
                        const std::function<void(const PairArrays&)>& fill, Workspace workspace,
                        cudaStream_t stream) {
  if (pairs == 0 || dim == 0) {
    return;
  }
  require(dim <= 1024, "rows of up to 1024 elements");
  require(rows < (Index{1} << 32) - 1, "fewer than 2^32 - 1 rows in a call");
  require(pairs < (Index{1} << 31), "fewer than 2^31 lookups in a call");
  const Layout l = layout_of(pairs, rows, dim);
  require_workspace(workspace.bytes, l.total, "embedding backward");
  auto* memory = static_cast<char*>(workspace.data);
  Update u;
  u.tables = tables;
  u.rule = rule;
  u.gradient = gradient;
  u.weights = weights;
  u.pairs = pairs;
  u.tile = tile_size(pairs);
  u.tiles = ceil_div(pairs, u.tile);
  u.dim = dim;
  u.partial = reinterpret_cast<float*>(memory + l.partial);
  u.long_tiles = reinterpret_cast<Index*>(memory + l.long_tiles);
  u.long_count = reinterpret_cast<unsigned*>(memory + l.long_count);
  cudaMemsetAsync(u.long_count, 0, sizeof(unsigned), stream);
  check_launch("clearing the list of long runs");
  cub::DoubleBuffer<Key> keys(reinterpret_cast<Key*>(memory + l.keys[0]),
                              reinterpret_cast<Key*>(memory + l.keys[1]));
  cub::DoubleBuffer<std::uint32_t> slots(reinterpret_cast<std::uint32_t*>(memory + l.slots[0]),
                                         reinterpret_cast<std::uint32_t*>(memory + l.slots[1]));
  const auto pad = static_cast<Key>(rows);
  fill({keys.Current(), slots.Current(), pad});
  std::size_t bytes = l.sort_bytes;
  const cudaError_t sorted = sort(memory + l.sort, bytes, keys, slots, pairs, rows, stream);
  check_launch("radix sort");
  require(sorted == cudaSuccess, "a radix sort that fails leaves an error");
  launch_all(u, keys.Current(), slots.Current(), pad, packed, stream);
}

}  // namespace stepcast::runtime::cuda::kernels::internal
