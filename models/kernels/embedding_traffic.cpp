#include "models/kernels/embedding_traffic.h"

#include <algorithm>
#include <cmath>

#include "core/access/access.h"
#include "core/graph/program.h"

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

double ShardTraffic::unique_over(double ops) const {
  if (ops <= 1 || over[0] <= 0) {
    return unique_in(ops);
  }
  const double position = std::log2(std::min(ops, std::exp2(kSteps)));
  const auto i = static_cast<std::size_t>(
      std::clamp(position, 0.0, static_cast<double>(kSteps) - 1));  // between 2^i and 2^(i + 1)
  const double below = i == 0 ? unique_rows() : over[i - 1];
  const double start = std::exp2(static_cast<double>(i));
  const double share = std::clamp((ops - start) / start, 0.0, 1.0);
  return below + share * (over[i] - below);
}

/// Slope of U between neighbouring grid windows, per lookup; intervals of `over` follow those of
/// `unique`.
double ShardTraffic::slope(std::size_t interval) const {
  const auto value = [this](std::size_t i) {
    return i < kWindows ? unique[i] : over[i - kWindows];
  };
  return (value(interval + 1) - value(interval)) / (window_at(interval + 1) - window_at(interval)) /
         lookups;
}

double ShardTraffic::miss_rate(double window) const {
  if (lookups <= 0) {
    return 0;
  }
  if (window <= window_at(0)) {
    return std::min(1.0, unique[0] / (window_at(0) * lookups));
  }
  // U is concave, so its slope falls from 1 to 0; grid slopes at geometric interval centres,
  // powers of the window between them.
  const std::size_t last = kLast - 1 + (over[0] > 0 ? kSteps : 0);
  const double position = std::log2(window) + static_cast<double>(kLast) - 0.5;
  const double lower = std::clamp(std::floor(position), 0.0, static_cast<double>(last));
  const auto i = static_cast<std::size_t>(lower);
  const double share = std::clamp(position - lower, 0.0, 1.0);
  const double here = std::clamp(slope(i), 1e-12, 1.0);
  const double next = std::clamp(slope(std::min(i + 1, last)), 1e-12, 1.0);
  return here * std::pow(next / here, share);
}

double ShardTraffic::misses(double window) const {
  if (window >= 1 || lookups <= 0) {
    return unique_rows();
  }
  window = std::max(window, 0.0);
  return std::clamp(unique_in(window) + (1 - window) * lookups * miss_rate(window), unique_rows(),
                    std::max(lookups, unique_rows()));
}

double ShardTraffic::misses(double window, double across) const {
  const double cold = misses(window);
  if (across <= 0 || lookups <= 0 || over[0] <= 0) {
    return cold;
  }
  if (across >= 1 && window >= 1) {
    return std::min(cold, lookups * miss_rate(across));
  }
  const double x = std::min({across, window, 1.0});
  const double saved = unique_in(x) - x * lookups * miss_rate(x);  // first uses that hit after all
  return std::clamp(cold - saved, 0.0, cold);
}

ShardTraffic shard_traffic(const EmbeddingShard& shard, Format format) {
  ShardTraffic t;
  t.shard = &shard;
  t.lookups = std::max(0.0, shard.lookups);
  t.bags = std::max(0.0, shard.bags);
  t.rows = static_cast<double>(shard.rows);
  t.row_bytes = format_bytes(format, 1, shard.dim).base();
  const double rows = std::max(1.0, t.rows);
  const auto distinct_in = [&](double n) {
    const double distinct =
        shard.access ? shard.access->unique(n).value
                     : rows * -std::expm1(n * std::log1p(-std::min(1.0 / rows, 0.999999)));
    return std::clamp(distinct, 0.0, std::min(n, rows));
  };
  for (std::size_t i = 0; i < ShardTraffic::kWindows; ++i) {
    t.unique[i] = distinct_in(t.lookups * window_at(i));
  }
  for (std::size_t i = 0; i < ShardTraffic::kSteps; ++i) {
    t.over[i] = distinct_in(t.lookups * std::exp2(static_cast<double>(i + 1)));
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

double window_across(const std::vector<ShardTraffic>& shards, double streamed, double capacity,
                     double sector) {
  const auto footprint = [&](std::size_t doublings) {
    const double ops = std::exp2(static_cast<double>(doublings));
    double total = ops * streamed;
    for (const ShardTraffic& s : shards) {
      total += s.unique_over(ops) * sector_bytes(s.row_bytes, sector);
    }
    return total;
  };
  double below = footprint(0);
  if (below >= capacity) {
    return window_that_fills(capacity, [&](std::size_t i) {
      double total = window_at(i) * streamed;
      for (const ShardTraffic& s : shards) {
        total += s.unique[i] * sector_bytes(s.row_bytes, sector);
      }
      return total;
    });
  }
  for (std::size_t i = 0; i < ShardTraffic::kSteps; ++i) {
    const double above = footprint(i + 1);
    if (above >= capacity) {
      const double start = std::exp2(static_cast<double>(i));
      return start + start * (capacity - below) / (above - below);
    }
    below = above;
  }
  return std::exp2(static_cast<double>(ShardTraffic::kSteps));
}

}  // namespace stepcast::models
