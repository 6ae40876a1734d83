#include "runtime/cuda/kernels/index_exchange.h"

#include <cub/device/device_scan.cuh>

#include "runtime/cuda/kernels/internal/element.cuh"
#include "runtime/cuda/kernels/internal/owner.h"

namespace stepcast::runtime::cuda::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBagLanes = 8;

unsigned blocks_for(Index threads) {
  return static_cast<unsigned>(internal::ceil_div(threads, kThreads));
}

__device__ inline Index bag_begin(const Bags& bags, Index bag) {
  return bags.offsets != nullptr ? bags.offsets[bag] : bag;
}
__device__ inline Index bag_end(const Bags& bags, Index bag) {
  return bags.offsets != nullptr ? bags.offsets[bag + 1] : bag + 1;
}

/// Eight lanes a bag, eight lookups a turn, in order. visit(bag, owner, lanes of the turn with the
/// same owner, rank of this one among them).
template <class Visit>
__device__ void for_each_lookup(const Bags& bags, const RowSplit& split, Visit visit) {
  const Index bag = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / kBagLanes;
  const int lane = static_cast<int>(threadIdx.x) % kBagLanes;
  if (bag >= bags.count) {
    return;
  }
  const unsigned group = 0xFFU << (threadIdx.x % 32 / kBagLanes * kBagLanes);
  const Index end = bag_end(bags, bag);
  for (Index first = bag_begin(bags, bag); first < end; first += kBagLanes) {
    const bool mine = first + lane < end;
    internal::Owner owner{-1, 0};
    if (mine) {
      owner = internal::owner_of(bags.indices[first + lane], split.parts, split.boundaries);
    }
    const unsigned same = __match_any_sync(group, owner.part);
    if (mine) {
      const unsigned before = same & ((1U << (threadIdx.x % 32)) - 1U);
      visit(bag, owner, same, __popc(before));
    }
    __syncwarp(group);
  }
}

__global__ void count_kernel(Bags bags, RowSplit split, std::int32_t* lengths) {
  for_each_lookup(bags, split, [&](Index bag, internal::Owner owner, unsigned same, int rank) {
    if (rank == 0) {
      lengths[owner.part * bags.count + bag] += __popc(same);  // no other group has this bag
    }
  });
}

__global__ void fill_kernel(Bags bags, RowSplit split, std::int64_t* cursors, std::int64_t* out) {
  for_each_lookup(bags, split, [&](Index bag, internal::Owner owner, unsigned same, int rank) {
    std::int64_t& cursor = cursors[owner.part * bags.count + bag];
    const std::int64_t next = cursor;
    out[next + rank] = owner.row;
    __syncwarp(same);  // all of them have read it
    if (rank == 0) {
      cursor = next + __popc(same);
    }
  });
}

__global__ void lengths_kernel(Bags bags, std::int32_t* lengths) {
  const Index bag = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (bag < bags.count) {
    lengths[bag] = static_cast<std::int32_t>(bag_end(bags, bag) - bag_begin(bags, bag));
  }
}

__global__ void factors_kernel(const std::int32_t* lengths, Index count, float* factors) {
  const Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) {
    factors[i] = 1.0F / static_cast<float>(lengths[i] > 1 ? lengths[i] : 1);
  }
}

/// One warp a segment.
__global__ void segment_sums_kernel(const std::int32_t* lengths, const std::int64_t* first,
                                    Index segments, Index count, std::int64_t* sums,
                                    std::int64_t* bags) {
  const Index segment = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (segment >= segments) {
    return;
  }
  long long sum = 0;
  long long there = 0;
  for (Index i = threadIdx.x % 32; i < count; i += 32) {
    const std::int32_t length = lengths[first[segment] + i];
    sum += length > 0 ? length : 0;
    there += length >= 0 ? 1 : 0;
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
    there += __shfl_xor_sync(0xFFFFFFFFU, there, step);
  }
  if (threadIdx.x % 32 == 0) {
    sums[segment] = sum;
    bags[segment] = there;
  }
}

__global__ void first_offset_kernel(std::int64_t base, std::int64_t* offsets) { *offsets = base; }

struct Plus {
  __host__ __device__ std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return a + b;
  }
};

cudaError_t scan(void* memory, std::size_t& bytes, const std::int32_t* lengths, Index count,
                 std::int64_t base, std::int64_t* offsets, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveScanInit(memory, bytes, lengths, offsets + 1, Plus{}, base,
                                            static_cast<int>(count), stream);
}

}  // namespace

void count_by_owner(const Bags& bags, const RowSplit& split, std::int32_t* lengths,
                    cudaStream_t stream) {
  if (bags.count == 0) {
    return;
  }
  cudaMemsetAsync(lengths, 0,
                  static_cast<std::size_t>(split.parts * bags.count) * sizeof(std::int32_t),
                  stream);
  internal::launch("count_by_owner", count_kernel, {blocks_for(bags.count * kBagLanes), kThreads},
                   stream, bags, split, lengths);
}

void fill_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* cursors,
                   std::int64_t* out, cudaStream_t stream) {
  if (bags.count == 0) {
    return;
  }
  internal::launch("fill_by_owner", fill_kernel, {blocks_for(bags.count * kBagLanes), kThreads},
                   stream, bags, split, cursors, out);
}

void bag_lengths(const Bags& bags, std::int32_t* lengths, cudaStream_t stream) {
  if (bags.count > 0) {
    internal::launch("bag_lengths", lengths_kernel, {blocks_for(bags.count), kThreads}, stream,
                     bags, lengths);
  }
}

void mean_factors(const std::int32_t* lengths, Index count, float* factors, cudaStream_t stream) {
  if (count > 0) {
    internal::launch("mean_factors", factors_kernel, {blocks_for(count), kThreads}, stream, lengths,
                     count, factors);
  }
}

std::size_t lengths_to_offsets_workspace(Index count) {
  std::size_t bytes = 0;
  if (scan(nullptr, bytes, nullptr, count, 0, nullptr, nullptr) != cudaSuccess) {
    internal::check_launch("prefix sum (size of its workspace)");
  }
  return bytes;
}

void lengths_to_offsets(const std::int32_t* lengths, Index count, std::int64_t base,
                        std::int64_t* offsets, Workspace workspace, cudaStream_t stream) {
  internal::launch("lengths_to_offsets", first_offset_kernel, {1, 1}, stream, base, offsets);
  if (count > 0) {
    std::size_t bytes = workspace.bytes;
    const cudaError_t scanned = scan(workspace.data, bytes, lengths, count, base, offsets, stream);
    internal::check_launch("lengths_to_offsets");
    internal::require(scanned == cudaSuccess, "a prefix sum that fails leaves an error");
  }
  internal::check_launch("lengths_to_offsets");
}

void segment_sums(const std::int32_t* lengths, const std::int64_t* first, Index segments,
                  Index count, std::int64_t* sums, std::int64_t* bags, cudaStream_t stream) {
  if (segments > 0) {
    internal::launch("segment_sums", segment_sums_kernel, {blocks_for(segments * 32), kThreads},
                     stream, lengths, first, segments, count, sums, bags);
  }
}

}  // namespace stepcast::runtime::cuda::kernels
