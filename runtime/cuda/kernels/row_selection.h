#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/index_exchange.h"

namespace stepcast::runtime::cuda::kernels {

/// Rows [first, first + rows) of a table in a plan's order of rows.
struct RowRange {
  Index first = 0;
  Index rows = 0;
  const std::uint32_t* remap =
      nullptr;  ///< place of each row in that order (device); null: its own
};

/// lengths[b] = lookups of bag b that fall into the range.
void count_in_range(const Bags& bags, const RowRange& range, std::int32_t* lengths,
                    cudaStream_t stream);
/// Writes those lookups, counted from the first row of the range, in their order: bag b's from
/// out[offsets[b]] on, offsets from the counts.
void fill_in_range(const Bags& bags, const RowRange& range, const std::int64_t* offsets,
                   std::int64_t* out, cudaStream_t stream);

/// The distinct rows of a list: by owner, and within an owner ascending.
struct DistinctRows {
  std::int64_t* rows = nullptr;     ///< up to bags.lookups
  std::int64_t* offsets = nullptr;  ///< bags.count + 1: the rows dealt out over as many bags
  std::int64_t* inverse = nullptr;  ///< bags.indices[i] = rows[inverse[i]]
};
std::size_t distinct_rows_workspace(const Bags& bags);
/// `part_rows`: rows of the largest part. Valid: parts * part_rows below 2^32 - 1, lookups from
/// offset 0 on.
void distinct_rows(const Bags& bags, const RowSplit& split, Index part_rows,
                   const DistinctRows& out, Workspace workspace, cudaStream_t stream);

/// A row of a table and the slot of a cache that holds it.
struct RowMove {
  std::int64_t row = 0;
  std::int64_t slot = 0;
};
/// Rows of `bytes` bytes, one after the other: in the table, and in the slots of a cache.
struct RowPart {
  void* table = nullptr;
  void* slots = nullptr;
  Index bytes = 0;
};
constexpr int kRowParts = 3;
struct RowParts {
  RowPart at[kRowParts];
  int count = 0;
};
/// Copies each row into its slot, or each slot into its row; no row and no slot occurs twice. The
/// table may be page-locked memory of the host.
void move_rows(const RowParts& parts, const RowMove* moves, Index count, bool into_slots,
               cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
