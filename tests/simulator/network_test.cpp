#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "simulator/network.h"

namespace stepcast::simulator {
namespace {

struct Start {
  std::int64_t time = 0, duration = 0;
  double speed = 1;
  std::vector<Network::Use> links;
};

/// Ends by id.
std::vector<std::int64_t> run(std::size_t links, const std::vector<Start>& starts) {
  Network network(links);
  std::vector<std::int64_t> ends(starts.size(), -1);
  std::size_t next = 0;
  while (next < starts.size() || !network.idle()) {
    const bool start =
        network.idle() || (next < starts.size() && starts[next].time <= network.next_end());
    if (start) {
      const std::int64_t now = starts[next].time;
      while (next < starts.size() && starts[next].time == now) {
        network.start(static_cast<std::uint32_t>(next), now, starts[next].duration,
                      starts[next].speed, starts[next].links);
        ++next;
      }
      network.settle(now);
    } else {
      const std::int64_t now = network.next_end();
      ends[network.finish_next()] = now;
      network.settle(now);
    }
  }
  return ends;
}

TEST_CASE("transfers end when max-min shares of their links say", "[simulator][network]") {
  struct Case {
    const char* what;
    std::size_t links;
    std::vector<Start> starts;
    std::vector<std::int64_t> ends;
  };
  for (const Case& c : {
           Case{"alone: its own time exactly", 1, {{5, 1000, 1, {{0}}}}, {1005}},
           // Links 0 and 1. A on both, B and C on 0, D on 1. Link 0: 1/3 each. Link 1: A has 1/3, D
           // the remaining 2/3. So D, of 600, ends at 900; A, B, C of 300 end at 900 too.
           Case{"one that is bound elsewhere leaves its share to the others",
                2,
                {{0, 300, 1, {{0}, {1}}},
                 {0, 300, 1, {{0}}},
                 {0, 300, 1, {{0}}},
                 {0, 600, 1, {{1}}}},
                {900, 900, 900, 900}},
           // The first runs at its own speed (1000), the second at 0.75: 750 / 0.75.
           Case{"one that is slower than its share keeps its own speed",
                1,
                {{0, 1000, 0.25, {{0}}}, {0, 750, 1, {{0}}}},
                {1000, 1000}},
           // A alone until 400 (600 left), then half rate: B of 300 ends at 1000, A has 300 left.
           Case{"a late start slows what is in flight from then on",
                1,
                {{0, 1000, 1, {{0}}}, {400, 300, 1, {{0}}}},
                {1300, 1000}},
           Case{"a start at the very end of another does not slow it",
                1,
                {{0, 400, 1, {{0}}}, {400, 300, 1, {{0}}}},
                {400, 700}},
           // Link 1 is full where 0.25 + 1 of a common speed of 0.8 are on it.
           Case{"one that uses a link less takes less of it",
                2,
                {{0, 800, 1, {{0}, {1, 0.25}}}, {0, 800, 1, {{1}}}},
                {1000, 1000}},
       }) {
    INFO(c.what);
    CHECK(run(c.links, c.starts) == c.ends);
  }
  for (const std::int64_t n : {2, 3, 64}) {  // n of 1000 share a link: all end at n * 1000
    const auto count = static_cast<std::size_t>(n);
    CHECK(run(1, std::vector<Start>(count, Start{0, 1000, 1, {{0}}})) ==
          std::vector<std::int64_t>(count, n * 1000));
  }
}

TEST_CASE("a link is never used beyond its capacity, and never idles while it is wanted",
          "[simulator][network][property]") {
  // One link, all transfers full speed: work is conserved, so the last end is that of a single
  // server.
  std::mt19937 engine(static_cast<unsigned>(GENERATE(range(1, 51))));
  std::vector<Start> starts;
  std::int64_t time = 0;
  for (int i = 0; i < 40; ++i) {
    time += static_cast<std::int64_t>(engine() % 700);
    starts.push_back({time, static_cast<std::int64_t>(1 + engine() % 1000) * 1000, 1, {{0}}});
    time += 1;
  }
  std::int64_t server = 0;
  for (const Start& s : starts) {
    server = std::max(server, s.time) + s.duration;
  }
  const auto ends = run(1, starts);
  CHECK(std::abs(*std::max_element(ends.begin(), ends.end()) - server) <=
        80);  // rounding, 1 per change
  for (std::size_t i = 0; i < starts.size(); ++i) {
    CHECK(ends[i] >= starts[i].time + starts[i].duration);
  }
}

}  // namespace
}  // namespace stepcast::simulator
