#include "runtime/emulation/schedules.h"

#include <algorithm>

#include "core/graph/link_traffic.h"
#include "runtime/futex.h"

namespace stepcast::runtime {

void Mailbox::put(Mail mail) {
  const std::uint32_t n = written.load(std::memory_order_relaxed);
  std::uint32_t taken = 0;
  while (n - (taken = read.load()) >= kCapacity) {
    futex_wait(read, taken, true);
  }
  mails[n % kCapacity] = mail;
  written.store(n + 1);
  futex_wake_all(written, true);
}

namespace {

/// Sleeps until the word changes, or a while if there is something to do meanwhile.
void doze(std::atomic<std::uint32_t>& word, std::uint32_t expected,
          const std::function<void()>& idle) {
  constexpr timespec kWhile{0, 200'000};
  if (idle) {
    idle();
  }
  futex_wait(word, expected, true, idle ? &kWhile : nullptr);
}

}  // namespace

Mailbox::Mail Mailbox::take(const std::function<void()>& idle) {
  const std::uint32_t n = read.load(std::memory_order_relaxed);
  while (written.load() == n) {
    doze(written, n, idle);
  }
  const Mail mail = mails[n % kCapacity];
  read.store(n + 1);
  if (written.load() - n >= kCapacity) {
    futex_wake_all(read, true);
  }
  return mail;
}

Schedules::Schedules(PacedFabric& fabric, std::vector<std::int32_t> members, int position,
                     GroupMemory memory, std::function<void()> idle)
    : fabric_(fabric),
      members_(std::move(members)),
      position_(position),
      memory_(memory),
      idle_(std::move(idle)) {
  std::vector<std::int64_t> units;
  for (std::size_t level = 0; level < fabric_.levels(); ++level) {
    units.push_back(fabric_.unit(level));
  }
  rings_ = ring_levels(units, members_, position_);
}

std::int64_t Schedules::send(int to, double bytes, std::int64_t start) {
  const auto delivery =
      fabric_.transfer(members_[static_cast<std::size_t>(position_)],
                       members_[static_cast<std::size_t>(to)], bytes, start, true);
  box(memory_.collective, position_, to).put({delivery.arrived, 0});
  return delivery.sent;
}

/// peers - 1 steps; in each, everybody sends to the next and receives from the one before.
std::int64_t Schedules::ring(std::span<const int> peers, double bytes_per_step,
                             std::int64_t start) {
  const std::size_t n = peers.size();
  const auto own =
      static_cast<std::size_t>(std::find(peers.begin(), peers.end(), position_) - peers.begin());
  const int next = peers[(own + 1) % n];
  const int before = peers[(own + n - 1) % n];
  std::int64_t clock = start;
  for (std::size_t step = 0; step + 1 < n; ++step) {
    const std::int64_t sent = send(next, bytes_per_step, clock);
    clock = std::max(sent, receive(before));
  }
  return clock;
}

std::int64_t Schedules::reduce_scatter(double bytes, std::int64_t start) {
  for (const auto& peers : rings_) {
    bytes /= static_cast<double>(peers.size());
    start = ring(peers, bytes, start);
  }
  return start;
}

std::int64_t Schedules::all_gather(double bytes, std::int64_t start) {
  bytes /= static_cast<double>(members_.size());
  for (auto peers = rings_.rbegin(); peers != rings_.rend(); ++peers) {
    start = ring(*peers, bytes, start);
    bytes *= static_cast<double>(peers->size());
  }
  return start;
}

std::int64_t Schedules::all_reduce(double bytes, std::int64_t start) {
  return all_gather(bytes, reduce_scatter(bytes, start));
}

std::int64_t Schedules::all_to_all(std::span<const double> bytes_to) {
  const std::size_t n = members_.size();
  const std::size_t parity = (meetings_ + 1) % 2;
  double* bytes = memory_.bytes + parity * n * n;
  std::int64_t* ends = memory_.ends + parity * n;
  std::copy(bytes_to.begin(), bytes_to.end(), bytes + static_cast<std::size_t>(position_) * n);
  meet([&](std::int64_t start) { fabric_.exchange(members_, {bytes, n * n}, start, {ends, n}); });
  return ends[position_];
}

/// A chain from the root, in parts, so that the links work at the same time.
std::int64_t Schedules::broadcast(double bytes, int root, std::int64_t start) {
  constexpr int kParts = 8;
  const auto n = static_cast<int>(members_.size());
  const int place = (position_ + n - root) % n;
  const int next = (position_ + 1) % n;
  std::int64_t clock = start;
  for (int part = 0; part < kParts && n > 1; ++part) {
    if (place > 0) {
      clock = std::max(clock, receive((position_ + n - 1) % n));
    }
    if (place + 1 < n) {
      clock = send(next, bytes / kParts, clock);
    }
  }
  return clock;
}

/// Dissemination: in round k, tell the member 2^k further on.
std::int64_t Schedules::barrier(std::int64_t start) {
  const auto n = static_cast<int>(members_.size());
  for (int distance = 1; distance < n; distance *= 2) {
    send((position_ + distance) % n, 0, start);
    start = std::max(start, receive((position_ + n - distance) % n));
  }
  return start;
}

void Schedules::post(int to, double bytes, std::int64_t tag, std::int64_t start) {
  const auto delivery =
      fabric_.transfer(members_[static_cast<std::size_t>(position_)],
                       members_[static_cast<std::size_t>(to)], bytes, start, false);
  box(memory_.direct, position_, to).put({delivery.arrived, tag});
}

std::int64_t Schedules::await(int from, std::int64_t tag) {
  const auto early = std::find_if(early_.begin(), early_.end(), [&](const auto& e) {
    return e.first == from && e.second.tag == tag;
  });
  if (early != early_.end()) {
    const std::int64_t arrived = early->second.arrived;
    early_.erase(early);
    return arrived;
  }
  while (true) {
    const Mailbox::Mail mail = box(memory_.direct, from, position_).take(idle_);
    if (mail.tag == tag) {
      return mail.arrived;
    }
    early_.emplace_back(from, mail);
  }
}

std::int64_t Schedules::rendezvous() {
  return meet([](std::int64_t) {});
}

std::int64_t Schedules::meet(const std::function<void(std::int64_t)>& last_to_come) {
  Arrivals& arrivals = *memory_.arrivals;
  std::atomic<std::int64_t>& last = arrivals.last[++meetings_ % 2];
  const std::int64_t now = steady_ns();
  std::int64_t latest = last.load();
  while (latest < now && !last.compare_exchange_weak(latest, now)) {
  }
  if (arrivals.come.fetch_add(1) + 1 == meetings_ * static_cast<std::uint32_t>(members_.size())) {
    last_to_come(last.load());
    arrivals.begun.store(meetings_);
    futex_wake_all(arrivals.begun, true);
  }
  std::uint32_t begun = 0;
  while (static_cast<std::int32_t>((begun = arrivals.begun.load()) - meetings_) < 0) {
    doze(arrivals.begun, begun, idle_);
  }
  return last.load();
}

}  // namespace stepcast::runtime
