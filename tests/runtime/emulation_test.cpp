#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/graph/collective_schedule.h"
#include "core/graph/op_traits.h"
#include "runtime/emulation/core_lease.h"
#include "runtime/emulation/paced_fabric.h"
#include "runtime/emulation/schedules.h"
#include "runtime/futex.h"

using namespace stepcast;
using namespace stepcast::runtime;

namespace {

/// Slow links, so that what is booked lies far ahead of the clock and thread timing plays no part:
/// 1 MB/s and 2 ms inside a node of `node` devices, 0.25 MB/s and 8 ms between nodes.
System system_of(std::int64_t node, std::int64_t nodes, double oversubscription = 1) {
  System s;
  s.name = "toy";
  s.fabric.push_back({"inner", node, BytesPerSecond(1e6), milliseconds(2), 1, false});
  if (nodes > 1) {
    s.fabric.push_back(
        {"outer", nodes, BytesPerSecond(0.25e6), milliseconds(8), oversubscription, false});
  }
  return s;
}

constexpr double kMs = 1e6;  // ns

/// Ranks as threads over one memory, as processes would map it.
class Toy {
 public:
  Toy(const System& system, int ranks)
      : ranks_(ranks),
        links_(PacedFabric::links_needed(system, ranks)),
        boxes_(static_cast<std::size_t>(2 * ranks * ranks)),
        bytes_(boxes_.size()),
        ends_(static_cast<std::size_t>(2 * ranks)),
        fabric(system, ranks, links_.data()) {}

  /// Durations in ns from the common start until each rank's part is done.
  std::vector<double> play(const std::function<std::int64_t(Schedules&, int, std::int64_t)>& part) {
    const std::int64_t start = steady_ns();
    std::vector<double> took(static_cast<std::size_t>(ranks_));
    std::vector<std::int32_t> members;
    for (int r = 0; r < ranks_; ++r) {
      members.push_back(r);
    }
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        Schedules schedules(fabric, members, r,
                            {&arrivals_, boxes_.data(), boxes_.data() + ranks_ * ranks_,
                             bytes_.data(), ends_.data()});
        took[static_cast<std::size_t>(r)] = static_cast<double>(part(schedules, r, start) - start);
      });
    }
    for (auto& t : threads) {
      t.join();
    }
    return took;
  }

 private:
  int ranks_;
  std::vector<PacedFabric::Link> links_;
  std::vector<Mailbox> boxes_;
  std::vector<double> bytes_;
  std::vector<PacedFabric::End> ends_;
  Arrivals arrivals_{};

 public:
  PacedFabric fabric;
};

void check_all(const std::vector<double>& took, double expected) {
  for (const double t : took) {
    CHECK(t == Approx(expected).epsilon(1e-4));
  }
}

}  // namespace

TEST_CASE("one message takes its bytes over the bandwidth, plus the latency",
          "[runtime][emulate]") {
  Toy toy(system_of(2, 2), 4);
  // 3000 bytes at 1 MB/s: 3 ms, + 2 ms; across nodes at 0.25 MB/s: 12 ms, + 8 ms.
  const auto inner = toy.fabric.transfer(0, 1, 3000, 0, false);
  CHECK(inner.sent == Approx(3 * kMs));
  CHECK(inner.arrived == Approx(5 * kMs));
  const auto outer = toy.fabric.transfer(1, 2, 3000, 0, false);
  CHECK(outer.sent == Approx(12 * kMs));
  CHECK(outer.arrived == Approx(20 * kMs));
}

TEST_CASE("flows into one port share it, flows to different ports do not", "[runtime][emulate]") {
  Toy toy(system_of(4, 1), 4);
  const double bytes = 1e6;  // 1 s alone, 16 chunks
  const auto a = toy.fabric.transfer(0, 3, bytes, 0, false);
  const auto b = toy.fabric.transfer(1, 3, bytes, 0, false);  // behind a at the port of 3
  const auto c = toy.fabric.transfer(2, 0, bytes, 0, false);  // alone
  CHECK(a.sent == Approx(1000 * kMs));
  CHECK(b.sent == Approx(2000 * kMs).epsilon(1e-3));
  CHECK(c.sent == Approx(1000 * kMs));
}

TEST_CASE("an oversubscribed level shares its uplinks", "[runtime][emulate]") {
  // Two devices per node; 4-fold oversubscription leaves each node 2 * 0.25 / 4 MB/s: both devices
  // together send 2 * 1000 bytes in 16 ms instead of 4.
  const System s = system_of(2, 2, 4);
  Toy toy(s, 4);
  const auto a = toy.fabric.transfer(0, 2, 1000, 0, false);
  const auto b = toy.fabric.transfer(1, 3, 1000, 0, false);
  CHECK(a.sent == Approx(8 * kMs));
  CHECK(b.sent == Approx(16 * kMs));
  CHECK_THROWS_AS(Toy(s, 5), InputError);
}

TEST_CASE("a ring all-reduce takes 2 (n - 1) steps of B / n", "[runtime][emulate]") {
  const int n = GENERATE(2, 3, 5);
  CAPTURE(n);
  Toy toy(system_of(n, 1), n);
  const double bytes = 30000.0;
  const double step = bytes / n / 1e6 * 1e9 + 2 * kMs;  // ns
  check_all(toy.play([&](Schedules& s, int, std::int64_t t) {
    return s.play(RingUse::kAllReduce, bytes, t);
  }),
            2 * (n - 1) * step);
}

TEST_CASE("gathers and scatters are half an all-reduce", "[runtime][emulate]") {
  Toy toy(system_of(4, 1), 4);
  const double step = 10000.0 / 1e6 * 1e9 + 2 * kMs;
  check_all(toy.play([](Schedules& s, int, std::int64_t t) {
    return s.play(RingUse::kAllGather, 40000, t);
  }),
            3 * step);
  Toy again(system_of(4, 1), 4);
  check_all(again.play([](Schedules& s, int, std::int64_t t) {
    return s.play(RingUse::kReduceScatter, 40000, t);
  }),
            3 * step);
}

TEST_CASE("across nodes every NIC carries its share", "[runtime][emulate]") {
  // 2 nodes of 2: inside, 1 step of B / 2 each way; between, 1 step of B / 4 each way, over the
  // slow level. 120 ms on the links to 20 ms of latencies: 6 parts. The slow links rest only while
  // the first part comes and the last one goes.
  Toy toy(system_of(2, 2), 4);
  const double bytes = 40000;
  const double inside = bytes / 2 / 1e6 * 1e9 / 6 + 2 * kMs;
  const double between = 2 * (bytes / 4) / 0.25e6 * 1e9 + 8 * kMs;
  for (const double took : toy.play([&](Schedules&s, int, std::int64_t t) {
         return s.play(RingUse::kAllReduce, bytes, t);
       })) {
    CHECK(took == Approx(inside + between + inside).epsilon(0.03));  // parts go in step
  }
}

TEST_CASE("a ring crosses machines in as many channels as the emptiest has members",
          "[runtime][emulate]") {
  // Machines of 4 + 4 + 2 ranks: two channels, each of which leaves a machine by another card. A
  // card carries half of each of nine tenths: 20 ms a step, and 8 ms to the other machine; a single
  // channel would take twice that.
  Toy toy(system_of(4, 3), 10);
  const double bytes = 100000;
  const double card = bytes / 10 / 2 / 0.25e6 * 1e9;
  const auto took = toy.play(
      [&](Schedules& s, int, std::int64_t t) { return s.play(RingUse::kReduceScatter, bytes, t); });
  const double end = *std::max_element(took.begin(), took.end());
  CHECK(end >= 9 * card + 8 * kMs - 1);
  CHECK(end <= 9 * (card + 8 * kMs) + 1);
}

TEST_CASE("groups of any shape take what the busiest port carries",
          "[runtime][emulate][property]") {
  const auto seed = static_cast<std::uint64_t>(GENERATE(range(0, 16)));
  std::mt19937_64 random(seed);
  const auto among = [&random](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  System system = system_of(among(1, 4), among(2, 4));
  system.fabric.push_back({"outermost", 2, BytesPerSecond(0.2e6), Seconds{}, 1, false});
  for (FabricLevel& level : system.fabric) {
    level.latency = Seconds{};
  }
  const std::int64_t rack = system.devices_in_level(1);
  const auto ranks = static_cast<int>(among(0, 1) == 1 ? 2 * rack : among(2, 2 * rack));
  std::vector<std::int32_t> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  const GroupShape shape = group_shape(system, all);
  const LinkLevels levels(system);
  const double bytes = 2e4;
  for (const auto& [use, kind] : {std::pair{RingUse::kReduceScatter, OpKind::kReduceScatter},
                                  std::pair{RingUse::kAllGather, OpKind::kAllGather},
                                  std::pair{RingUse::kAllReduce, OpKind::kAllReduce}}) {
    CAPTURE(seed, ranks, name_of(kind), system.fabric[0].size, system.fabric[1].size);
    const std::vector<double> ports =
        port_bytes(kind, plain_algorithm(use, shape), bytes, shape, system);
    std::vector<double> busiest(3, 0.0);
    for (int r = 0; r < ranks; ++r) {
      const auto sent = sent_shares(use, levels, all, r);
      std::vector<double> received(3, 0.0);
      double left = 0;
      double came = 0;
      for (const Round& round : rounds_of(use, levels.units(), all, r)) {
        for (const Round::Message& m : round.sends) {
          left += static_cast<double>(round.times) * m.share;
          CHECK(std::count_if(round.sends.begin(), round.sends.end(),
                              [&](const auto& other) { return other.to == m.to; }) == 1);
        }
        came += static_cast<double>(round.times) * (round.receives.empty() ? 0 : 1);
      }
      // Each sends its n-th of the buffer to all others, or passes it on, in each pass.
      CHECK(left == Approx((use == RingUse::kAllReduce ? 2.0 : 1.0) * (ranks - 1) / ranks));
      CHECK(came >= std::log2(ranks) - 1e-9);
      for (std::size_t level = 0; level < 3; ++level) {
        busiest[level] = std::max(busiest[level], sent[level] * bytes);
      }
    }
    double longest = 0;
    for (std::size_t level = 0; level < 3; ++level) {
      CHECK(busiest[level] <= ports[level] * (1 + 1e-9));
      longest = std::max(longest, (level == 0 ? ports[0] : busiest[level]) /
                                      system.fabric[level].bandwidth.base());
    }
    // Links inside a unit wait for channels that leave it. What the middle level passes on to the
    // outermost is counted on both.
    CHECK(busiest[1] + busiest[2] >= ports[1] * (1 - 1e-9));
    CHECK(busiest[2] == Approx(ports[2]));
    Toy toy(system, ranks);
    const auto took =
        toy.play([&](Schedules& s, int, std::int64_t t) { return s.play(use, bytes, t); });
    const double end = *std::max_element(took.begin(), took.end()) * 1e-9;
    CHECK(end >= longest * (1 - 1e-3));
  }
}

TEST_CASE("unequal all-to-all ends rank by rank", "[runtime][emulate]") {
  // Rank 0 sends 6000 bytes to 1 and 1000 to 2, the others 1000 to everybody, at 1 MB/s.
  const System system = system_of(3, 1);
  std::vector<PacedFabric::Link> links(PacedFabric::links_needed(system, 3));
  PacedFabric fabric(system, 3, links.data());
  const std::vector<std::int32_t> members{0, 1, 2};
  const std::vector<double> bytes{0, 6000, 1000, 1000, 0, 1000, 1000, 1000, 0};
  std::vector<PacedFabric::End> ends(3);
  fabric.exchange(members, bytes, 0, ends);
  // Port of 1, in: 7 ms, its last chunk 2 ms later. Port of 0, out: 7 ms. Rank 2 is in no long
  // message: chunks of 4096 bytes keep its port waiting for at most one of them.
  CHECK(ends[0] == Approx(7 * kMs));
  CHECK(ends[1] == Approx(9 * kMs));
  CHECK(ends[2] >= 4 * kMs);
  CHECK(ends[2] <= 9 * kMs);
}

TEST_CASE("an equal all-to-all keeps every port busy", "[runtime][emulate]") {
  // 2 nodes of 2; each rank sends 1 MB to each other: 1 s inside, 2 MB at 0.25 MB/s = 8 s across,
  // beside each other; latency 8 ms.
  const System system = system_of(2, 2);
  std::vector<PacedFabric::Link> links(PacedFabric::links_needed(system, 4));
  PacedFabric fabric(system, 4, links.data());
  const std::vector<std::int32_t> members{0, 1, 2, 3};
  const std::vector<double> bytes(16, 1e6);
  std::vector<PacedFabric::End> ends(4);
  fabric.exchange(members, bytes, 0, ends);
  for (const PacedFabric::End& end : ends) {
    CHECK(end == Approx(8008 * kMs).epsilon(1e-4));
  }
}

TEST_CASE("exchanges at the same time share their links", "[runtime][emulate]") {
  // 100,000 bytes at 1 MB/s, twice, from half a second on, by when both threads run: 200 ms for
  // both, latency 2 ms. One behind the other the first would be done after 102 ms.
  std::vector<PacedFabric::Link> links(PacedFabric::links_needed(system_of(2, 1), 2));
  PacedFabric fabric(system_of(2, 1), 2, links.data());
  const std::vector<std::int32_t> members{0, 1};
  const std::vector<double> bytes{0, 1e5, 0, 0};
  const std::int64_t start = steady_ns() + static_cast<std::int64_t>(500 * kMs);
  std::array<std::vector<PacedFabric::End>, 2> ends{std::vector<PacedFabric::End>(2),
                                                    std::vector<PacedFabric::End>(2)};
  std::thread other([&] { fabric.exchange(members, bytes, start, ends[1]); });
  fabric.exchange(members, bytes, start, ends[0]);
  other.join();
  const auto took = [&](int i) { return static_cast<double>(ends[i][1] - start); };
  CHECK(std::min(took(0), took(1)) >= 130 * kMs);
  CHECK(std::max(took(0), took(1)) >= 202 * kMs * (1 - 1e-6));
}

TEST_CASE("an exchange begins when the last rank comes and all know when they are done",
          "[runtime][emulate]") {
  Toy toy(system_of(2, 1), 2);
  std::atomic<std::int64_t> late{0};
  const auto took = toy.play([&](Schedules& s, int rank, std::int64_t t) {
    if (rank == 1) {
      sleep_until_ns(t + static_cast<std::int64_t>(5 * kMs));
      late = steady_ns() - t;
    }
    s.meet_for_exchange(std::vector<double>{1000, 1000});
    return s.exchange();
  });
  for (const double end : took) {  // 1 ms on the link, 2 ms latency
    CHECK(end >= static_cast<double>(late.load()) + 3 * kMs);
    CHECK(end <= static_cast<double>(late.load()) + 4 * kMs);
  }
}

TEST_CASE("sends arrive by tag, whatever the order they are awaited in", "[runtime][emulate]") {
  Toy toy(system_of(2, 1), 2);
  const auto took = toy.play([](Schedules& s, int rank, std::int64_t t) {
    if (rank == 0) {
      s.post(1, 1000, 7, t);
      s.post(1, 4000, 8, t);
      return t;
    }
    const std::int64_t second = s.await(0, 8);
    const std::int64_t first = s.await(0, 7);
    CHECK(second - first == Approx(4 * kMs));
    return second;
  });
  CHECK(took[1] == Approx(7 * kMs).epsilon(1e-4));  // 1 + 4 ms on the link, 2 ms latency
}

TEST_CASE("a core's token goes to one at a time, first come first served", "[runtime][emulate]") {
  CoreLease::Token token{};
  int inside = 0;
  int most = 0;
  std::int64_t waited = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      CoreLease lease(token);
      for (int k = 0; k < 200; ++k) {
        const std::int64_t ns = lease.acquire();
        waited += ns;
        most = std::max(most, ++inside);
        if (k % 50 == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others come meanwhile
        }
        --inside;
        lease.release();
      }
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  CHECK(most == 1);
  CHECK(waited > 0);  // four threads that all hold it 200 times
  CHECK(token.serving.load() == 800);
}
