#pragma once
#include <cstdint>

#include "runtime/cpu/kernels/embedding.h"

namespace stepcast::runtime::kernels {

/// Which part owns a row, and the row's number there. Ranges: part p owns [boundaries[p],
/// boundaries[p + 1]), local row = row - boundaries[p]. Without boundaries: part = row mod parts,
/// local row = row / parts. Every row must have an owner.
struct RowSplit {
  Index parts = 1;
  const std::int64_t* boundaries = nullptr;  ///< parts + 1, ascending; ranges may be empty
};

/// The part that owns a row.
Index owner_of(std::int64_t row, const RowSplit& split);

/// First pass of sorting a batch's lookups by owner: lengths[p * bags.count + b] = lookups of bag b
/// that part p owns.
void count_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* lengths);

/// Second pass: writes each lookup's local row to out[cursors[owner]++]. Within a part the order is
/// that of the lookups. Set cursors[p] to where the part's block starts in the send buffer;
/// afterwards each stands one past its block.
void fill_by_owner(const Bags& bags, const RowSplit& split, std::int64_t* cursors,
                   std::int64_t* out);

/// lengths[b] = size of bag b.
void bag_lengths(const Bags& bags, std::int64_t* lengths);

}  // namespace stepcast::runtime::kernels
