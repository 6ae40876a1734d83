#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "core/graph/observer.h"

namespace stepcast::studies::internal {

/// Spans of a rank by time: what runs in a step is found without a look at those of all steps.
class SpansByTime {
 public:
  /// `spans` must outlive it.
  explicit SpansByTime(const std::vector<OpSpan>& spans) : spans_(spans), order_(spans.size()) {
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&spans](std::uint32_t a, std::uint32_t b) {
      return spans[a].begin < spans[b].begin;
    });
    std::int64_t last = std::numeric_limits<std::int64_t>::min();
    for (const std::uint32_t i : order_) {
      last = std::max(last, ticks(spans[i].end));
      ends_.push_back(last);
    }
  }
  /// Spans that run between two times, cut to them, in their own order.
  [[nodiscard]] std::vector<OpSpan> within(std::int64_t begin, std::int64_t end) const {
    const auto reaches = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    std::vector<std::uint32_t> found;
    for (auto i = order_.begin() + reaches; i != order_.end() && ticks(spans_[*i].begin) < end; ++i) {
      if (ticks(spans_[*i].end) > begin) {
        found.push_back(*i);
      }
    }
    std::sort(found.begin(), found.end());
    std::vector<OpSpan> cut;
    cut.reserve(found.size());
    for (const std::uint32_t i : found) {
      OpSpan& span = cut.emplace_back(spans_[i]);
      for (SimTime* t : {&span.begin, &span.ready, &span.end}) {
        *t = SimTime{std::clamp(ticks(*t), begin, end)};
      }
    }
    return cut;
  }
  /// The first that begins at a time or after it; null where none does.
  [[nodiscard]] const OpSpan* from(std::int64_t time) const {
    const auto next =
        std::lower_bound(order_.begin(), order_.end(), time, [this](std::uint32_t i, std::int64_t t) {
          return ticks(spans_[i].begin) < t;
        });
    return next == order_.end() ? nullptr : &spans_[*next];
  }

 private:
  const std::vector<OpSpan>& spans_;
  std::vector<std::uint32_t> order_;  ///< by begin
  std::vector<std::int64_t> ends_;    ///< by `order_`: the latest so far
};

}  // namespace stepcast::studies::internal
