#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// Which keys a query sees.
struct Mask {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  bool causal = true;
  std::int64_t window = 0;  ///< causal only: the last keys a query sees; 0: all

  [[nodiscard]] STEPCAST_HOST_DEVICE bool visible(std::int64_t query, std::int64_t key) const {
    const std::int64_t last = query + keys - queries;
    return query < queries && key < keys &&
           (!causal || (key <= last && (window == 0 || key > last - window)));
  }
  /// Whether all of `count` x `others` pairs from (query, key) on are visible: no need to look at
  /// each.
  [[nodiscard]] STEPCAST_HOST_DEVICE bool all_visible(std::int64_t query, int count,
                                                      std::int64_t key, int others) const {
    return query + count <= queries && visible(query, key + others - 1) &&
           (window == 0 || visible(query + count - 1, key));
  }
};

/// Half-open range of rows.
struct Span {
  std::int64_t begin;
  std::int64_t end;
};

/// The keys that any of the `count` queries from `first` on sees.
STEPCAST_HOST_DEVICE inline Span keys_of(const Mask& mask, std::int64_t first, int count) {
  if (!mask.causal) {
    return {0, mask.keys};
  }
  const std::int64_t last = first + count < mask.queries ? first + count : mask.queries;
  const std::int64_t end = last + mask.keys - mask.queries;
  const std::int64_t begin =
      mask.window > 0 ? first + mask.keys - mask.queries + 1 - mask.window : 0;
  return {begin > 0 ? begin : 0, end < mask.keys ? end : mask.keys};
}

/// The queries that see any of the `count` keys from `first` on, from a multiple of `step`.
STEPCAST_HOST_DEVICE inline Span queries_of(const Mask& mask, std::int64_t first, int count,
                                            int step) {
  std::int64_t begin = mask.causal ? first - (mask.keys - mask.queries) : 0;
  begin = begin > 0 ? begin / step * step : 0;
  std::int64_t end = mask.queries;
  if (mask.causal && mask.window > 0) {
    const std::int64_t last = first + count + mask.window - 1 - (mask.keys - mask.queries);
    end = last < end ? last : end;
  }
  return {begin, end};
}

}  // namespace stepcast::runtime::cuda::kernels::internal
