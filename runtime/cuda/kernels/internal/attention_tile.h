#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// Which keys a query sees. Masks are of one sample; `of_sample` moves on to that of a block.
struct Mask {
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  bool causal = true;
  std::int64_t window = 0;  ///< causal only: the last keys a query sees; 0: all

  [[nodiscard]] STEPCAST_HOST_DEVICE Mask of_sample(std::int64_t) const { return *this; }
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

/// Rows that are sequences end to end: each sees those of its own one, from begins[row] to before
/// ends[row]. Both ascend from row to row.
struct SequenceMask {
  std::int64_t queries = 0;
  std::int64_t keys = 0;  ///< as many
  bool causal = true;
  const std::int32_t* begins = nullptr;
  const std::int32_t* ends = nullptr;

  [[nodiscard]] STEPCAST_HOST_DEVICE SequenceMask of_sample(std::int64_t sample) const {
    return {queries, keys, causal, begins + sample * queries, ends + sample * queries};
  }
  [[nodiscard]] STEPCAST_HOST_DEVICE bool visible(std::int64_t query, std::int64_t key) const {
    return query < queries && key < keys && key >= begins[query] &&
           key < (causal ? query + 1 : ends[query]);
  }
  [[nodiscard]] STEPCAST_HOST_DEVICE bool all_visible(std::int64_t query, int count,
                                                      std::int64_t key, int others) const {
    return query + count <= queries && visible(query, key + others - 1) &&
           visible(query + count - 1, key);
  }
};

STEPCAST_HOST_DEVICE inline Span keys_of(const SequenceMask& mask, std::int64_t first, int count) {
  const std::int64_t end = first + count < mask.queries ? first + count : mask.queries;
  return {mask.begins[first], mask.causal ? end : mask.ends[end - 1]};
}

STEPCAST_HOST_DEVICE inline Span queries_of(const SequenceMask& mask, std::int64_t first, int count,
                                            int step) {
  const std::int64_t end = first + count < mask.keys ? first + count : mask.keys;
  const std::int64_t begin = mask.causal ? first : mask.begins[first];
  return {begin / step * step, mask.ends[end - 1]};
}

}  // namespace stepcast::runtime::cuda::kernels::internal
