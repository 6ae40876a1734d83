#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/embedding.h"

namespace stepcast::runtime::cuda::kernels {

/// The distinct ones among bags of ids (an inverse keyed jagged tensor; RecD, arXiv 2211.05239), in
/// the order in which they first appear. Two bags are alike where they have the same ids in the
/// same order. There are as many places as bags, so that the host need not know how many lists
/// there are; those from `count` on are empty.
struct DistinctLists {
  std::int64_t* ids = nullptr;      ///< up to bags.lookups
  std::int64_t* offsets = nullptr;  ///< bags.count + 1, from 0
  std::int64_t* inverse = nullptr;  ///< by bag: its list
  std::int64_t* count = nullptr;    ///< one number
};
std::size_t distinct_lists_workspace(Index bags);
/// Valid: fewer than 2^31 bags; lists compared id by id, whatever their hashes.
void distinct_lists(const Bags& bags, const DistinctLists& out, Workspace workspace,
                    cudaStream_t stream);

/// marked[p * bags + b] = lengths[p * bags + b] for b below *count (device), else `absent`, for p <
/// parts; may be the same address.
void mark_absent(const std::int32_t* lengths, Index parts, Index bags, const std::int64_t* count,
                 std::int32_t absent, std::int32_t* marked, cudaStream_t stream);

/// out[b] = x[places[b]], or that added to it. Formats may differ.
void spread_rows(ConstMatrixView x, const std::int64_t* places, bool accumulate, MatrixView out,
                 cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
