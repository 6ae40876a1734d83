#include "runtime/cpu/kernels/distinct.h"

#include <algorithm>
#include <bit>

namespace stepcast::runtime::kernels {

void DistinctIds::find(const std::int64_t* ids, Index count) {
  const std::size_t size = std::bit_ceil(2 * static_cast<std::size_t>(std::max<Index>(count, 1)));
  table_.assign(size, -1);
  distinct_.clear();
  inverse_.resize(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) {
    const std::uint64_t mixed = static_cast<std::uint64_t>(ids[i]) * 0x9e3779b97f4a7c15ULL;
    std::size_t at = static_cast<std::size_t>(mixed >> 32U) & (size - 1);
    while (table_[at] >= 0 && distinct_[static_cast<std::size_t>(table_[at])] != ids[i]) {
      at = (at + 1) & (size - 1);
    }
    if (table_[at] < 0) {
      table_[at] = static_cast<std::int64_t>(distinct_.size());
      distinct_.push_back(ids[i]);
    }
    inverse_[static_cast<std::size_t>(i)] = table_[at];
  }
}

}  // namespace stepcast::runtime::kernels
