#include "runtime/emulation/schedules.h"

#include <algorithm>

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
      idle_(std::move(idle)) {}

std::int64_t Schedules::send(int to, double bytes, std::int64_t start) {
  const auto delivery =
      fabric_.transfer(members_[static_cast<std::size_t>(position_)],
                       members_[static_cast<std::size_t>(to)], bytes, start, true);
  box(memory_.collective, position_, to).put({delivery.arrived, 0});
  return delivery.sent;
}

std::int64_t Schedules::play(std::span<const Round> rounds, double bytes, int parts,
                             std::int64_t start) {
  std::vector<const Round*> each;
  for (const Round& round : rounds) {
    each.insert(each.end(), static_cast<std::size_t>(round.times), &round);
  }
  const auto n = static_cast<int>(each.size());
  std::vector<std::int64_t> clocks(static_cast<std::size_t>(parts), start);
  for (int tick = 0; tick < n + parts - 1; ++tick) {
    const int first = std::max(0, tick - n + 1);
    const int last = std::min(parts - 1, tick);
    std::vector<std::int64_t> sent(clocks);
    for (int p = last; p >= first; --p) {  // the youngest first: those before it wait for mail
      const auto at = static_cast<std::size_t>(p);
      for (const Round::Message& m : each[static_cast<std::size_t>(tick - p)]->sends) {
        sent[at] = std::max(sent[at], send(m.to, bytes * m.share / parts, clocks[at]));
      }
    }
    for (int p = last; p >= first; --p) {  // the youngest first: those before it wait for mail
      const auto at = static_cast<std::size_t>(p);
      clocks[at] = sent[at];
      for (const int from : each[static_cast<std::size_t>(tick - p)]->receives) {
        clocks[at] = std::max(clocks[at], receive(from));
      }
    }
  }
  return *std::max_element(clocks.begin(), clocks.end());
}

/// Channels of a ring have one rate on all their hops: inside a unit messages take as long as if
/// all of them stayed there.
void Schedules::keep_pace(Round& round) const {
  const auto unit_of = [this](int position) {
    return members_[static_cast<std::size_t>(position)] / fabric_.unit(0);
  };
  double all = 0;
  double inside = 0;
  for (const Round::Message& m : round.sends) {
    all += m.share;
    inside += unit_of(m.to) == unit_of(position_) ? m.share : 0;
  }
  for (Round::Message& m : round.sends) {
    m.share *= unit_of(m.to) == unit_of(position_) ? all / inside : 1;
  }
}

/// Parts whose messages take about as long as their latencies: shorter ones would only wait, longer
/// ones leave the links of other levels idle. A ring's channels are its parts, and where all rounds
/// go over the same links there is nothing to overlap.
int Schedules::parts_of(std::span<const Round> rounds, double bytes) const {
  constexpr double kMost = 32;
  const auto level_of = [this](const Round& round) {
    const std::int32_t to = members_[static_cast<std::size_t>(round.sends.front().to)];
    const std::int32_t from = members_[static_cast<std::size_t>(position_)];
    std::size_t level = 0;
    while (level + 1 < fabric_.levels() && to / fabric_.unit(level) != from / fabric_.unit(level)) {
      ++level;
    }
    return level;
  };
  if (rounds.front().sends.size() > 1 ||
      std::all_of(rounds.begin(), rounds.end(), [&](const Round& round) {
        return level_of(round) == level_of(rounds.front());
      })) {
    return 1;
  }
  double wire = 0;
  double latency = 0;
  for (const Round& round : rounds) {
    const Round::Message& m = round.sends.front();
    const auto alone = fabric_.alone(members_[static_cast<std::size_t>(position_)],
                                     members_[static_cast<std::size_t>(m.to)], bytes * m.share);
    wire += static_cast<double>(round.times * alone.sent);
    latency += static_cast<double>(round.times * (alone.arrived - alone.sent));
  }
  return static_cast<int>(std::clamp(wire / std::max(latency, 1.0), 1.0, kMost));
}

std::int64_t Schedules::play(RingUse use, double bytes, std::int64_t start) {
  std::vector<Round>& rounds = rounds_[static_cast<std::size_t>(use)];
  if (rounds.empty()) {
    std::vector<std::int64_t> units;
    for (std::size_t level = 0; level < fabric_.levels(); ++level) {
      units.push_back(fabric_.unit(level));
    }
    rounds = rounds_of(use, units, members_, position_);
    std::for_each(rounds.begin(), rounds.end(), [this](Round& round) { keep_pace(round); });
  }
  return play(rounds, bytes, parts_of(rounds, bytes), start);
}

void Schedules::meet_for_exchange(std::span<const double> bytes_to) {
  const std::size_t n = members_.size();
  const std::size_t parity = (meetings_ + 1) % 2;
  std::copy(bytes_to.begin(), bytes_to.end(),
            memory_.bytes + (parity * n + static_cast<std::size_t>(position_)) * n);
  meet([&] { std::fill_n(memory_.ends + parity * n, n, 0); });
}

std::int64_t Schedules::exchange() {
  constexpr std::int64_t kWhile = 200'000;
  const std::size_t n = members_.size();
  const std::size_t parity = meetings_ % 2;
  const std::span<const double> bytes{memory_.bytes + parity * n * n, n * n};
  const std::span<PacedFabric::End> ends{memory_.ends + parity * n, n};
  std::vector<double> moved(2 * n, 0);  // out, then in
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    moved[i / n] += i / n == i % n ? 0 : bytes[i];
    moved[n + i % n] += i / n == i % n ? 0 : bytes[i];
  }
  const auto most = std::max_element(moved.begin(), moved.end()) - moved.begin();
  if (static_cast<int>(static_cast<std::size_t>(most) % n) == position_) {
    fabric_.exchange(members_, bytes, memory_.arrivals->last[parity], ends, idle_);
  }
  std::int64_t end = 0;
  while ((end = ends[static_cast<std::size_t>(position_)].load()) == 0) {
    if (idle_) {
      idle_();
    }
    sleep_until_ns(steady_ns() + kWhile);
  }
  return end;
}

/// A chain from the root, in parts, so that the links work at the same time.
std::int64_t Schedules::broadcast(double bytes, int root, std::int64_t start) {
  constexpr int kParts = 8;
  const auto n = static_cast<int>(members_.size());
  const int place = (position_ + n - root) % n;
  std::vector<Round> rounds(static_cast<std::size_t>(n - 1));
  if (place > 0) {
    rounds[static_cast<std::size_t>(place) - 1].receives = {(position_ + n - 1) % n};
  }
  if (place + 1 < n) {
    rounds[static_cast<std::size_t>(place)].sends = {{(position_ + 1) % n, 1}};
  }
  return play(rounds, bytes, kParts, start);
}

/// Dissemination: in round k, tell the member 2^k further on.
std::int64_t Schedules::barrier(std::int64_t start) {
  const auto n = static_cast<int>(members_.size());
  std::vector<Round> rounds;
  for (int distance = 1; distance < n; distance *= 2) {
    rounds.push_back({1, {{(position_ + distance) % n, 0}}, {(position_ + n - distance) % n}});
  }
  return play(rounds, 0, 1, start);
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
  return meet([] {});
}

std::int64_t Schedules::meet(const std::function<void()>& last_to_come) {
  Arrivals& arrivals = *memory_.arrivals;
  std::atomic<std::int64_t>& last = arrivals.last[++meetings_ % 2];
  const std::int64_t now = steady_ns();
  std::int64_t latest = last.load();
  while (latest < now && !last.compare_exchange_weak(latest, now)) {
  }
  if (arrivals.come.fetch_add(1) + 1 == meetings_ * static_cast<std::uint32_t>(members_.size())) {
    last_to_come();
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
