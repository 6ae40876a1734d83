#include "runtime/emulation/paced_fabric.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "runtime/futex.h"

namespace stepcast::runtime {
namespace {

constexpr std::int64_t kAhead = 1'000'000;    // ns a sender may book ahead of the clock
constexpr double kChunkTime = 500'000;        // ns on the slowest link of the path
constexpr double kSmallestChunk = 64 * 1024;  // bytes
constexpr int kKinds = 4;                     // egress, ingress, uplink, downlink

/// Books `duration` on a link, from `earliest` or when it is free; returns the beginning.
std::int64_t book(PacedFabric::Link& link, std::int64_t earliest, std::int64_t duration) {
  std::int64_t booked = link.booked_until.load();
  std::int64_t start = 0;
  do {
    start = std::max(booked, earliest);
  } while (!link.booked_until.compare_exchange_weak(booked, start + duration));
  return start;
}

}  // namespace

PacedFabric::PacedFabric(const System& system, int devices, Link* links)
    : devices_(devices), links_(links) {
  std::int64_t inner = 1;
  for (std::size_t i = 0; i < system.fabric.size(); ++i) {
    const FabricLevel& f = system.fabric[i];
    Level level;
    level.inner = inner;
    level.unit = inner * f.size;
    level.bytes_per_ns = f.bandwidth.base() * 1e-9;
    level.latency = std::llround(f.latency.base() * 1e9);
    if (f.oversubscription > 1) {
      level.uplink_bytes_per_ns =
          level.bytes_per_ns * static_cast<double>(inner) / f.oversubscription;
    }
    levels_.push_back(level);
    inner = level.unit;
  }
  if (levels_.empty() || inner < devices) {
    throw InputError(
        fmt::format("system '{}': fabric", system.name),
        fmt::format("joins {} devices, but {} ranks run; add a level or use fewer ranks",
                    levels_.empty() ? 1 : inner, devices));
  }
}

std::size_t PacedFabric::links_needed(const System& system, int devices) {
  return system.fabric.size() * kKinds * static_cast<std::size_t>(devices);
}

std::int64_t PacedFabric::widest_latency() const { return levels_.back().latency; }

std::size_t PacedFabric::level_between(int from, int to) const {
  std::size_t level = 0;
  while (level + 1 < levels_.size() && from / levels_[level].unit != to / levels_[level].unit) {
    ++level;
  }
  return level;
}

PacedFabric::Link& PacedFabric::link(std::size_t level, int kind, int index) const {
  return links_[(level * kKinds + static_cast<std::size_t>(kind)) *
                    static_cast<std::size_t>(devices_) +
                static_cast<std::size_t>(index)];
}

std::size_t PacedFabric::path(int from, int to, std::size_t level, Hop (&hops)[4]) const {
  const Level& l = levels_[level];
  std::size_t n = 0;
  hops[n++] = {&link(level, 0, from), l.bytes_per_ns};
  if (l.uplink_bytes_per_ns > 0) {
    hops[n++] = {&link(level, 2, static_cast<int>(from / l.inner)), l.uplink_bytes_per_ns};
    hops[n++] = {&link(level, 3, static_cast<int>(to / l.inner)), l.uplink_bytes_per_ns};
  }
  hops[n++] = {&link(level, 1, to), l.bytes_per_ns};
  return n;
}

PacedFabric::Delivery PacedFabric::transfer(int from, int to, double bytes, std::int64_t start,
                                            bool sleep) {
  const std::size_t level = level_between(from, to);
  const Level& l = levels_[level];
  Hop hops[4];
  const std::size_t n = path(from, to, level, hops);
  const double chunk = std::max({kSmallestChunk, std::min(bytes / 4, l.bytes_per_ns * kChunkTime)});
  std::int64_t clock = start;
  for (double left = bytes; left > 0; left -= chunk) {
    if (sleep && clock - steady_ns() > kAhead) {
      sleep_until_ns(clock - kAhead / 2);
    }
    // Cut-through: a chunk enters the next link when it enters this one, or when that is free.
    std::int64_t begin = clock;
    std::int64_t end = clock;
    for (std::size_t h = 0; h < n; ++h) {
      const std::int64_t duration = std::llround(std::min(left, chunk) / hops[h].bytes_per_ns);
      begin = book(*hops[h].link, begin, duration);
      end = std::max(end, begin + duration);
    }
    clock = end;
  }
  return {clock, clock + l.latency};
}

}  // namespace stepcast::runtime
