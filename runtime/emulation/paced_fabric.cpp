#include "runtime/emulation/paced_fabric.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <queue>
#include <tuple>

#include "core/error.h"
#include "core/split_mix.h"
#include "runtime/futex.h"

namespace stepcast::runtime {
namespace {

constexpr std::int64_t kAhead = 1'000'000;    // ns a sender may book ahead of the clock
constexpr double kChunkTime = 500'000;        // ns on the slowest link of the path
constexpr double kSmallestChunk = 16 * 1024;  // bytes
constexpr int kKinds = 4;                     // egress, ingress, uplink, downlink

}  // namespace

std::int64_t PacedFabric::book(Link& link, std::int64_t earliest, std::int64_t duration) {
  std::int64_t booked = link.booked_until.load();
  std::int64_t start = 0;
  do {
    start = std::max(booked, earliest);
  } while (!link.booked_until.compare_exchange_weak(booked, start + duration));
  return start;
}

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

PacedFabric::Flow PacedFabric::flow(int from, int to, double bytes, std::int64_t start) const {
  const std::size_t level = level_between(from, to);
  Flow f;
  f.hop_count = path(from, to, level, f.hops);
  f.chunk =
      std::max({kSmallestChunk, std::min(bytes / 4, levels_[level].bytes_per_ns * kChunkTime)});
  f.left = bytes;
  f.clock = start;
  f.latency = levels_[level].latency;
  return f;
}

/// Cut-through: a chunk enters the next link when it enters this one, or when that is free.
void PacedFabric::book_chunk(Flow& f) {
  std::int64_t begin = f.clock;
  std::int64_t end = f.clock;
  for (std::size_t h = 0; h < f.hop_count; ++h) {
    const std::int64_t duration = std::llround(std::min(f.left, f.chunk) / f.hops[h].bytes_per_ns);
    begin = book(*f.hops[h].link, begin, duration);
    end = std::max(end, begin + duration);
  }
  f.clock = end;
  f.left -= f.chunk;
}

PacedFabric::Delivery PacedFabric::transfer(int from, int to, double bytes, std::int64_t start,
                                            bool sleep) {
  Flow f = flow(from, to, bytes, start);
  while (f.left > 0) {
    if (sleep && f.clock - steady_ns() > kAhead) {
      sleep_until_ns(f.clock - kAhead / 2);
    }
    book_chunk(f);
  }
  return {f.clock, f.clock + f.latency};
}

PacedFabric::Delivery PacedFabric::alone(int from, int to, double bytes) const {
  const Flow f = flow(from, to, bytes, 0);
  double slowest = f.hops[0].bytes_per_ns;
  for (std::size_t h = 1; h < f.hop_count; ++h) {
    slowest = std::min(slowest, f.hops[h].bytes_per_ns);
  }
  const std::int64_t sent = std::llround(bytes / slowest);
  return {sent, sent + f.latency};
}

void PacedFabric::exchange(std::span<const std::int32_t> members, std::span<const double> bytes,
                           std::int64_t start, std::span<End> ends,
                           const std::function<void()>& idle) {
  constexpr double kChunks = 16;
  constexpr double kSmallest = 1024;
  const std::size_t n = members.size();
  std::vector<Flow> flows;
  std::vector<std::size_t> pair;
  std::vector<std::size_t> left(n, 0);  // messages of each member that are on their way
  std::vector<std::int64_t> latest(n, start);
  // Pairwise order: senders begin with different receivers.
  for (std::size_t step = 1; step < n; ++step) {
    for (std::size_t from = 0; from < n; ++from) {
      const std::size_t to = std::has_single_bit(n) ? from ^ step : (from + step) % n;
      if (bytes[from * n + to] <= 0) {
        continue;  // no message
      }
      Flow f = flow(members[from], members[to], bytes[from * n + to], start);
      f.chunk = std::max(kSmallest, std::min(f.chunk, f.left / kChunks));
      flows.push_back(f);
      pair.push_back(from * n + to);
      ++left[from];
      ++left[to];
    }
  }
  const auto note = [&](std::size_t member) {
    if (left[member] == 0) {
      ends[member].store(latest[member]);
    }
  };
  for (std::size_t member = 0; member < n; ++member) {
    note(member);
  }
  // By when the next chunk can start at the earliest; keys of chunks that others got ahead of are
  // renewed when they come up.
  using Key = std::tuple<std::int64_t, std::int64_t, std::size_t>;
  const auto key_of = [&flows](std::size_t i) {
    const Flow& f = flows[i];
    std::int64_t at = f.clock;
    for (std::size_t h = 0; h < f.hop_count; ++h) {
      at = std::max(at, f.hops[h].link->booked_until.load());
    }
    return Key{at, f.clock, i};
  };
  std::priority_queue<Key, std::vector<Key>, std::greater<>> next;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    next.push(key_of(i));
  }
  std::uint64_t random = static_cast<std::uint64_t>(start) ^ static_cast<std::uint64_t>(members[0]);
  while (!next.empty()) {
    const auto [at, clock, i] = next.top();
    if (const std::int64_t wait = at - kAhead - steady_ns(); wait > 0) {
      // Exchanges that wait for one link book it in random order.
      const auto turn = static_cast<std::int64_t>(next_split_mix(random) % (kAhead / 2));
      sleep_until_ns(steady_ns() + std::min(wait + turn, kAhead / 2));
      if (idle) {
        idle();
      }
      continue;
    }
    next.pop();
    if (const Key now = key_of(i); std::get<0>(now) > at) {
      next.push(now);
      continue;
    }
    Flow& f = flows[i];
    book_chunk(f);
    if (f.left > 0) {
      next.push(key_of(i));
      continue;
    }
    const std::size_t from = pair[i] / n;
    const std::size_t to = pair[i] % n;
    latest[from] = std::max(latest[from], f.clock);
    latest[to] = std::max(latest[to], f.clock + f.latency);
    --left[from];
    --left[to];
    note(from);
    note(to);
  }
}

}  // namespace stepcast::runtime
