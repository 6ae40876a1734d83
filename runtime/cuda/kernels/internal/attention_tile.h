#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/internal/host_device.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// Which keys a query sees.
struct Mask {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  bool causal = true;

  [[nodiscard]] STEPCAST_HOST_DEVICE bool visible(std::int64_t query, std::int64_t key) const {
    return query < queries && key < keys && (!causal || key <= query + keys - queries);
  }
  /// Whether all of `count` x `others` pairs from (query, key) on are visible: no need to look at
  /// each.
  [[nodiscard]] STEPCAST_HOST_DEVICE bool all_visible(std::int64_t query, int count,
                                                      std::int64_t key, int others) const {
    return query + count <= queries && visible(query, key + others - 1);
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
  return {0, end < mask.keys ? end : mask.keys};
}

/// The queries that see any of the `count` keys from `first` on, from a multiple of `step`.
STEPCAST_HOST_DEVICE inline Span queries_of(const Mask& mask, std::int64_t first, int step) {
  std::int64_t begin = mask.causal ? first - (mask.keys - mask.queries) : 0;
  begin = begin > 0 ? begin / step * step : 0;
  return {begin, mask.queries};
}

}  // namespace stepcast::runtime::cuda::kernels::internal
