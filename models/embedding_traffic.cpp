#include "models/embedding_traffic.h"

#include <algorithm>
#include <cmath>

namespace stepcast::models {
namespace {

constexpr std::size_t kLast = ShardTraffic::kWindows - 1;

double window_at(std::size_t i) {
  return std::exp2(static_cast<double>(i) - static_cast<double>(kLast));
}

/// Grid interval [i, i + 1] that holds the window; windows below the grid fall in [0, first].
std::size_t interval_of(double window) {
  const double position = std::log2(window) + static_cast<double>(kLast);
  return static_cast<std::size_t>(std::clamp(position, 0.0, static_cast<double>(kLast - 1)));
}

/// Inverts a footprint that is linear between grid points: the smallest window that fills
/// `capacity`.
template <typename Footprint>
double window_that_fills(double capacity, Footprint footprint_at) {
  if (footprint_at(kLast) <= capacity) {
    return 1;
  }
  std::size_t low = 0;
  std::size_t high = kLast;
  const double first = footprint_at(0);
  if (first >= capacity) {
    return window_at(0) * std::max(capacity, 0.0) / first;
  }
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (footprint_at(middle) < capacity ? low : high) = middle;
  }
  const double below = footprint_at(low);
  const double above = footprint_at(high);
  return window_at(low) + (window_at(high) - window_at(low)) * (capacity - below) / (above - below);
}

}  // namespace

double ShardTraffic::unique_in(double window) const {
  window = std::clamp(window, 0.0, 1.0);
  if (window <= window_at(0)) {
    return unique[0] * window / window_at(0);
  }
  const std::size_t i = interval_of(window);
  const double share = (window - window_at(i)) / (window_at(i + 1) - window_at(i));
  return unique[i] + share * (unique[i + 1] - unique[i]);
}

double ShardTraffic::misses(double window) const {
  if (window >= 1 || lookups <= 0) {
    return unique_rows();
  }
  window = std::max(window, 0.0);
  // U is concave, so its slope falls from 1 to 0; grid slopes at geometric interval centres, linear
  // between them in log window.
  const auto slope = [this](std::size_t i) {
    return (unique[i + 1] - unique[i]) / (window_at(i + 1) - window_at(i)) / lookups;
  };
  double rate = 1;
  if (window > window_at(0)) {
    const double position = std::log2(window) + static_cast<double>(kLast) - 0.5;
    const double lower = std::clamp(std::floor(position), 0.0, static_cast<double>(kLast - 1));
    const auto i = static_cast<std::size_t>(lower);
    const std::size_t next = std::min(i + 1, kLast - 1);
    const double share = std::clamp(position - lower, 0.0, 1.0);
    rate = (1 - share) * slope(i) + share * slope(next);
  } else {
    rate = std::min(1.0, unique[0] / (window_at(0) * lookups));
  }
  rate = std::clamp(rate, 0.0, 1.0);
  const double filled = unique_in(window);
  return std::clamp(filled + (1 - window) * lookups * rate, unique_rows(),
                    std::max(lookups, unique_rows()));
}

ShardTraffic shard_traffic(const EmbeddingShard& shard, Format format) {
  ShardTraffic t;
  t.shard = &shard;
  t.lookups = std::max(0.0, shard.lookups);
  t.bags = std::max(0.0, shard.bags);
  t.rows = static_cast<double>(shard.rows);
  t.row_bytes = format_bytes(format, 1, shard.dim).base();
  const double rows = std::max(1.0, t.rows);
  for (std::size_t i = 0; i < ShardTraffic::kWindows; ++i) {
    const double n = t.lookups * window_at(i);
    const double distinct =
        shard.access ? shard.access->unique(n).value
                     : rows * -std::expm1(n * std::log1p(-std::min(1.0 / rows, 0.999999)));
    t.unique[i] = std::clamp(distinct, 0.0, std::min(n, rows));
  }
  return t;
}

double sector_bytes(double bytes, double sector) { return std::ceil(bytes / sector) * sector; }

double shared_window(const std::vector<ShardTraffic>& shards, double capacity, double sector) {
  return window_that_fills(capacity, [&](std::size_t i) {
    double total = 0;
    for (const ShardTraffic& s : shards) {
      total += s.unique[i] * sector_bytes(s.row_bytes, sector);
    }
    return total;
  });
}

double own_window(const ShardTraffic& shard, double capacity, double sector) {
  const double row = sector_bytes(shard.row_bytes, sector);
  return window_that_fills(capacity, [&](std::size_t i) { return shard.unique[i] * row; });
}

}  // namespace stepcast::models
