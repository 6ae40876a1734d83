#include "runtime/cpu/kernels/distinct_lists.h"

#include <algorithm>
#include <bit>

namespace stepcast::runtime::kernels {
namespace {

constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15ULL;

std::uint64_t hash_of(const std::int64_t* first, const std::int64_t* last) {
  auto hash = static_cast<std::uint64_t>(last - first) * kMultiplier;
  for (const std::int64_t* id = first; id != last; ++id) {
    hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(*id)) * kMultiplier;
  }
  return hash >> 32U;
}

}  // namespace

void DistinctLists::find(const Bags& bags) {
  const std::size_t size =
      std::bit_ceil(2 * static_cast<std::size_t>(std::max<Index>(bags.count, 1)));
  table_.assign(size, -1);
  ids_.clear();
  offsets_.assign(1, 0);
  inverse_.resize(static_cast<std::size_t>(bags.count));
  for (Index b = 0; b < bags.count; ++b) {
    const std::int64_t* first = bags.indices + bags.begin(b);
    const std::int64_t* last = bags.indices + bags.end(b);
    const auto is = [&](std::int64_t list) {
      const auto at = static_cast<std::size_t>(list);
      return std::equal(first, last, ids_.begin() + offsets_[at], ids_.begin() + offsets_[at + 1]);
    };
    std::size_t at = static_cast<std::size_t>(hash_of(first, last)) & (size - 1);
    while (table_[at] >= 0 && !is(table_[at])) {
      at = (at + 1) & (size - 1);
    }
    if (table_[at] < 0) {
      table_[at] = static_cast<std::int64_t>(offsets_.size()) - 1;
      ids_.insert(ids_.end(), first, last);
      offsets_.push_back(static_cast<std::int64_t>(ids_.size()));
    }
    inverse_[static_cast<std::size_t>(b)] = table_[at];
  }
}

}  // namespace stepcast::runtime::kernels
