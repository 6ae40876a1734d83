#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/embedding.h"

namespace stepcast::runtime::cuda::kernels {

/// Which part owns a row, and the row's number there: ranges [boundaries[p], boundaries[p + 1])
/// with local row = row - boundaries[p] (boundaries in device memory), or without them part = row
/// mod parts, local row = row / parts.
struct RowSplit {
  Index parts = 1;
  const std::int64_t* boundaries = nullptr;  ///< parts + 1, ascending; ranges may be empty
};

/// lengths[p * bags.count + b] = lookups of bag b that part p owns.
void count_by_owner(const Bags& bags, const RowSplit& split, std::int32_t* lengths,
                    cudaStream_t stream);

/// Writes each lookup's local row to out[cursors[owner of it and its bag]++]; within a part the
/// order is that of the lookups. Set cursors[p * bags.count + b] to where the ids of bag b in part
/// p begin in `out`: offsets from the counts, plus where the part's block stands.
void fill_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* cursors,
                   std::int64_t* out, cudaStream_t stream);

/// lengths[b] = size of bag b.
void bag_lengths(const Bags& bags, std::int32_t* lengths, cudaStream_t stream);

/// factors[b] = 1 / max(1, lengths[b]).
void mean_factors(const std::int32_t* lengths, Index count, float* factors, cudaStream_t stream);

std::size_t lengths_to_offsets_workspace(Index count);

/// offsets[0] = base, offsets[i + 1] = offsets[i] + lengths[i]; offsets has count + 1 entries.
void lengths_to_offsets(const std::int32_t* lengths, Index count, std::int64_t base,
                        std::int64_t* offsets, Workspace workspace, cudaStream_t stream);

/// sums[i] = sum of lengths[first[i]] .. lengths[first[i] + count - 1], bags[i] = how many of them
/// there are, i < segments: what each peer sends. A negative length is that of no bag. `first` is
/// in device memory.
void segment_sums(const std::int32_t* lengths, const std::int64_t* first, Index segments,
                  Index count, std::int64_t* sums, std::int64_t* bags, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
