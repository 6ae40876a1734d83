#include "runtime/cuda/kernels/distinct_lists.h"

#include <cub/device/device_radix_sort.cuh>

#include "runtime/cuda/kernels/index_exchange.h"
#include "runtime/cuda/kernels/internal/list_hash.h"
#include "runtime/cuda/kernels/internal/map.cuh"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBagLanes = 8;  // threads that share a bag

using Key = std::uint32_t;

unsigned blocks_for(Index threads) {
  return static_cast<unsigned>(internal::ceil_div(threads, kThreads));
}

__device__ inline Index thread_of_grid() {
  return static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
}
/// The lanes that share this one's bag.
__device__ inline unsigned lanes_of_bag() {
  return 0xFFU << (threadIdx.x % 32 / kBagLanes * kBagLanes);
}

__device__ inline Index size_of(const Bags& bags, Index bag) {
  return bags.offsets[bag + 1] - bags.offsets[bag];
}

/// keys[b]: hash of bag b.
__global__ void keys_kernel(Bags bags, Key* keys, std::uint32_t* positions) {
  const Index bag = thread_of_grid() / kBagLanes;
  const int lane = static_cast<int>(threadIdx.x) % kBagLanes;
  if (bag >= bags.count) {
    return;  // all lanes of a bag leave together
  }
  const std::int64_t* ids = bags.indices + bags.offsets[bag];
  const Index size = size_of(bags, bag);
  unsigned long long hash = 0;
  for (Index i = lane; i < size; i += kBagLanes) {
    hash += internal::list_hash_term(ids[i], i);
  }
  for (int step = kBagLanes / 2; step > 0; step /= 2) {
    hash += __shfl_xor_sync(lanes_of_bag(), hash, step);
  }
  if (lane == 0) {
    keys[bag] = internal::list_key(hash);
    positions[bag] = static_cast<std::uint32_t>(bag);
  }
}

/// Whether two bags hold the same ids; all lanes of a bag get the same answer.
__device__ bool alike(const Bags& bags, Index a, Index b) {
  const Index size = size_of(bags, a);
  if (size != size_of(bags, b)) {
    return false;
  }
  const std::int64_t* of_a = bags.indices + bags.offsets[a];
  const std::int64_t* of_b = bags.indices + bags.offsets[b];
  for (Index first = 0; first < size; first += kBagLanes) {
    const Index i = first + threadIdx.x % kBagLanes;
    const bool differs = i < size && of_a[i] != of_b[i];
    if (__ballot_sync(lanes_of_bag(), differs) != 0) {
      return false;
    }
  }
  return true;
}

/// First position in keys[0, at] whose key is that at `at`.
__device__ Index run_begin(const Key* keys, Index at) {
  Index low = 0;
  Index high = at;
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (keys[middle] < keys[at]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// first[b]: the first bag like bag b. Bags of equal keys stand side by side in their order, and
/// nearly always are alike: then one comparison serves.
__global__ void match_kernel(Bags bags, const Key* keys, const std::uint32_t* positions,
                             std::uint32_t* first, std::int32_t* heads) {
  const Index at = thread_of_grid() / kBagLanes;
  if (at >= bags.count) {
    return;
  }
  const std::uint32_t bag = positions[at];
  Index other = run_begin(keys, at);
  while (other < at && !alike(bags, positions[other], bag)) {
    ++other;
  }
  if (threadIdx.x % kBagLanes == 0) {
    first[bag] = positions[other];
    heads[bag] = positions[other] == bag ? 1 : 0;
  }
}

/// Sizes of the lists by their numbers, numbers[b] being how many begin before bag b.
__global__ void number_kernel(Bags bags, const std::uint32_t* first, const std::int64_t* numbers,
                              std::int64_t* inverse, std::int32_t* sizes) {
  const Index bag = thread_of_grid();
  if (bag >= bags.count) {
    return;
  }
  inverse[bag] = numbers[first[bag]];
  if (first[bag] == bag) {
    sizes[numbers[bag]] = static_cast<std::int32_t>(size_of(bags, bag));
  }
  if (bag >= numbers[bags.count]) {
    sizes[bag] = 0;
  }
}

__global__ void copy_kernel(Bags bags, const std::uint32_t* first, DistinctLists out) {
  const Index bag = thread_of_grid() / kBagLanes;
  if (bag >= bags.count || first[bag] != bag) {
    return;
  }
  const std::int64_t* from = bags.indices + bags.offsets[bag];
  std::int64_t* to = out.ids + out.offsets[out.inverse[bag]];
  for (Index i = threadIdx.x % kBagLanes; i < size_of(bags, bag); i += kBagLanes) {
    to[i] = from[i];
  }
}

__global__ void mark_kernel(const std::int32_t* lengths, Index all, Index bags,
                            const std::int64_t* count, std::int32_t absent, std::int32_t* marked) {
  const Index i = thread_of_grid();
  if (i < all) {
    marked[i] = i % bags < *count ? lengths[i] : absent;
  }
}

/// y is the present value of `out`.
template <bool Accumulate>
struct Spread {
  internal::Operand rows;
  const std::int64_t* places;
  template <int Inputs, int N>
  __device__ void operator()(Index row, Index column, float (&x)[Inputs][N], float (&y)[1][N],
                             float (&)[1][N]) const {
    const Index from = places[row] * rows.stride + column;
    for (int k = 0; k < N; ++k) {
      y[0][k] =
          (Accumulate ? x[0][k] : 0.0F) + internal::load_one(rows.data, rows.format, from + k);
    }
  }
};

cudaError_t sort(void* memory, std::size_t& bytes, cub::DoubleBuffer<Key>& keys,
                 cub::DoubleBuffer<std::uint32_t>& positions, Index count, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, positions, static_cast<int>(count), 0,
                                         32, stream);
}

/// Pieces of the workspace, 256-byte aligned.
struct Pieces {
  std::size_t keys[2], positions[2], first, heads, numbers, sizes, library, library_bytes, total;
};

Pieces pieces_of(Index bags) {
  Pieces p{};
  const auto take = [&p](std::size_t bytes) {
    const std::size_t at = p.total;
    p.total += (bytes + 255) / 256 * 256;
    return at;
  };
  const auto n = static_cast<std::size_t>(bags);
  for (int i = 0; i < 2; ++i) {
    p.keys[i] = take(n * sizeof(Key));
    p.positions[i] = take(n * sizeof(std::uint32_t));
  }
  p.first = take(n * sizeof(std::uint32_t));
  p.heads = take(n * sizeof(std::int32_t));
  p.numbers = take((n + 1) * sizeof(std::int64_t));
  p.sizes = take(n * sizeof(std::int32_t));
  cub::DoubleBuffer<Key> keys;
  cub::DoubleBuffer<std::uint32_t> positions;
  if (sort(nullptr, p.library_bytes, keys, positions, bags, nullptr) != cudaSuccess) {
    internal::check_launch("distinct_lists (size of its workspace)");
  }
  const std::size_t scan = lengths_to_offsets_workspace(bags);
  p.library_bytes = scan > p.library_bytes ? scan : p.library_bytes;
  p.library = take(p.library_bytes);
  return p;
}

}  // namespace

std::size_t distinct_lists_workspace(Index bags) { return pieces_of(bags).total; }

void distinct_lists(const Bags& bags, const DistinctLists& out, Workspace workspace,
                    cudaStream_t stream) {
  internal::require(bags.count < (Index{1} << 31), "distinct lists of fewer than 2^31 bags");
  const Pieces p = pieces_of(bags.count);
  internal::require_workspace(workspace.bytes, p.total, "distinct_lists");
  const auto piece = [&](std::size_t at) { return static_cast<char*>(workspace.data) + at; };
  cub::DoubleBuffer<Key> keys(reinterpret_cast<Key*>(piece(p.keys[0])),
                              reinterpret_cast<Key*>(piece(p.keys[1])));
  cub::DoubleBuffer<std::uint32_t> positions(
      reinterpret_cast<std::uint32_t*>(piece(p.positions[0])),
      reinterpret_cast<std::uint32_t*>(piece(p.positions[1])));
  auto* first = reinterpret_cast<std::uint32_t*>(piece(p.first));
  auto* heads = reinterpret_cast<std::int32_t*>(piece(p.heads));
  auto* numbers = reinterpret_cast<std::int64_t*>(piece(p.numbers));
  auto* sizes = reinterpret_cast<std::int32_t*>(piece(p.sizes));
  const Workspace library{piece(p.library), p.library_bytes};
  const internal::Grid shared{blocks_for(bags.count * kBagLanes), kThreads};
  if (bags.count > 0) {
    internal::launch("distinct_lists: keys", keys_kernel, shared, stream, bags, keys.Current(),
                     positions.Current());
    std::size_t bytes = p.library_bytes;
    const cudaError_t sorted = sort(library.data, bytes, keys, positions, bags.count, stream);
    internal::check_launch("distinct_lists: sort");
    internal::require(sorted == cudaSuccess, "a sort that fails leaves an error");
    internal::launch("distinct_lists: match", match_kernel, shared, stream, bags, keys.Current(),
                     positions.Current(), first, heads);
  }
  lengths_to_offsets(heads, bags.count, 0, numbers, library, stream);
  if (bags.count > 0) {
    internal::launch("distinct_lists: numbers", number_kernel, {blocks_for(bags.count), kThreads},
                     stream, bags, first, numbers, out.inverse, sizes);
  }
  lengths_to_offsets(sizes, bags.count, 0, out.offsets, library, stream);
  if (bags.count > 0) {
    internal::launch("distinct_lists: ids", copy_kernel, shared, stream, bags, first, out);
  }
  cudaMemcpyAsync(out.count, numbers + bags.count, sizeof(std::int64_t), cudaMemcpyDeviceToDevice,
                  stream);
  internal::check_launch("distinct_lists: count");
}

void mark_absent(const std::int32_t* lengths, Index parts, Index bags, const std::int64_t* count,
                 std::int32_t absent, std::int32_t* marked, cudaStream_t stream) {
  const Index all = parts * bags;
  if (all > 0) {
    internal::launch("mark_absent", mark_kernel, {blocks_for(all), kThreads}, stream, lengths, all,
                     bags, count, absent, marked);
  }
}

void spread_rows(ConstMatrixView x, const std::int64_t* places, bool accumulate, MatrixView out,
                 cudaStream_t stream) {
  internal::require(x.columns == out.columns, "rows that are spread keep their width");
  if (accumulate) {
    internal::map(std::array<ConstMatrixView, 1>{out}, std::array{out},
                  Spread<true>{internal::operand(x), places}, {"spread_rows"}, stream);
  } else {
    internal::map(std::array<ConstMatrixView, 0>{}, std::array{out},
                  Spread<false>{internal::operand(x), places}, {"spread_rows"}, stream);
  }
}

}  // namespace stepcast::runtime::cuda::kernels
