// Closed forms of the engine. Times are ticks; every expected number is derived beside its check.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/simulator/graphs.h"

namespace stepcast::simulator {
namespace {

using test::alike;
using test::called_once;
using test::chain;
using test::compute;
using test::each;
using test::makespan;
using test::Recorder;
using test::set_cost;
using test::set_cost_of;
using test::talk;

TEST_CASE("without host cost a stream takes the sum of its kernels", "[simulator][engine]") {
  const auto g = chain(5);
  auto c = blank_costs(g);
  set_cost(g, c, "op", 100);
  CHECK(makespan(g, c) == 500);
  c.dispatch = 7;  // before each op
  CHECK(makespan(g, c) == 5 * 107);
}

TEST_CASE("a slow host bounds the step", "[simulator][engine]") {
  const auto g = chain(5);
  auto c = blank_costs(g);
  set_cost(g, c, "op", 100);
  c.issue = 1000;
  c.step = 50;
  // Op k is issued at 50 + 1000 k; the last one then takes 100.
  CHECK(makespan(g, c) == 50 + 5000 + 100);
  c.issue = 10;
  // The first op begins at 60; the stream never waits again.
  CHECK(makespan(g, c) == 60 + 500);
}

TEST_CASE("the host waits while a queue is full", "[simulator][engine]") {
  const auto g = alike(1, called_once([&](ProgramBuilder& b) {
                         for (int i = 0; i < 4; ++i) {
                           compute(b, "long");
                         }
                         compute(b, "side", "other");
                       }));
  auto c = blank_costs(g);
  set_cost(g, c, "long", 100);
  set_cost(g, c, "side", 5);
  c.issue = 10;
  c.queue_depth = 2;
  Recorder r;
  simulate(g, c, {}, &r);
  // Issued at 10, 20; op 2 once op 0 ended (110) at 120; op 3 once op 1 ended (210) at 220; side at
  // 230.
  CHECK(ticks(r.of(0, 2).issued) == 120);
  CHECK(ticks(r.of(0, 3).issued) == 220);
  CHECK(ticks(r.of(0, 4).begin) == 230);
  CHECK(makespan(g, c) == 410);
  std::int64_t full = 0;
  for (const HostSpan& h : r.hosts) {
    full += h.kind == HostSpan::Kind::kQueueFull ? ticks(h.end) - ticks(h.begin) : 0;
  }
  CHECK(full == (110 - 20) + (210 - 120));
}

TEST_CASE("each op may cost the host its own time", "[simulator][engine]") {
  const auto g = chain(3);
  auto c = blank_costs(g);
  set_cost(g, c, "op", 100);
  c.ops[0].issue = {10, 500, 20};
  Recorder r;
  simulate(g, c, {}, &r);
  // Issued at 10, 510 and 530; the second waits for its issue, the third for the second.
  CHECK(ticks(r.of(0, 0).begin) == 10);
  CHECK(ticks(r.of(0, 1).begin) == 510);
  CHECK(ticks(r.of(0, 2).issued) == 530);
  CHECK(ticks(r.of(0, 2).end) == 710);
}

TEST_CASE("launch latency is hidden while the stream is busy", "[simulator][engine]") {
  const auto g = chain(3);
  auto c = blank_costs(g);
  set_cost(g, c, "op", 100);
  c.issue = 10;
  c.ops[0].latency = {7, 50, 200};
  Recorder r;
  simulate(g, c, {}, &r);
  // Issued at 10, 20, 30. The first begins 7 later; the second could at 70, but the stream is busy
  // until 117; the third could at 230 only.
  CHECK(ticks(r.of(0, 0).begin) == 17);
  CHECK(ticks(r.of(0, 1).begin) == 117);
  CHECK(ticks(r.of(0, 2).begin) == 230);
}

TEST_CASE("a synchronising call holds the host until its event", "[simulator][engine]") {
  ProgramBuilder b;
  const auto s = b.begin_segment("all");
  const auto done = b.event();
  compute(b, "kernel").records(done);
  compute(b, "synchronize", "calls").flags(op_flags::kHostWaits).waits(done);
  compute(b, "next");
  b.end_segment();
  b.call(s);
  b.call(s);
  const auto g = alike(1, std::move(b).finish());
  for (const bool shared : {false, true}) {
    auto c = blank_costs(g);
    c.shares_core = shared;
    set_cost(g, c, "kernel", 100);
    set_cost(g, c, "next", 30);
    c.issue = 10;
    Recorder r;
    simulate(g, c, {}, &r);
    // Kernel: issued 10, ends 110; the call returns at 120; next: issued 130, ends 160.
    CHECK(ticks(r.of(0, 1).issued) == 120);
    CHECK(ticks(r.of(0, 2).issued) == 130);
    // On its own core the host goes on: the second kernel is issued at 140 and follows `next`. On a
    // shared one it issues first, and `next` begins when it blocks, at 140.
    CHECK(makespan(g, c) == (shared ? 140 + 30 + 100 + 20 + 30 : 160 + 100 + 20 + 30));
    const std::int64_t waited = std::accumulate(
        r.hosts.begin(), r.hosts.end(), std::int64_t{0}, [](std::int64_t sum, const HostSpan& h) {
          return sum + (h.kind == HostSpan::Kind::kSynchronize ? ticks(h.end) - ticks(h.begin) : 0);
        });
    CHECK(waited >= 100);
  }
}

TEST_CASE("an event orders streams; a wait means the latest record before it",
          "[simulator][engine]") {
  ProgramBuilder b;
  const auto e = b.event();
  const auto s = b.begin_segment("all");
  compute(b, "a").records(e);          // op 0: ends 100
  compute(b, "w1", "other").waits(e);  // op 1: 100 .. 110
  compute(b, "a").records(e);          // op 2: ends 200
  compute(b, "w2", "other").waits(e);  // op 3: 200 .. 210
  b.end_segment();
  const auto t = b.begin_segment("next");
  compute(b, "w3", "third").waits(e);  // op 4: waits for the record of op 2, an earlier call
  b.end_segment();
  b.call(s);
  b.call(t);
  const auto g = alike(1, std::move(b).finish());
  auto c = blank_costs(g);
  set_cost(g, c, "a", 100);
  set_cost(g, c, "w1", 10);
  set_cost(g, c, "w2", 10);
  set_cost(g, c, "w3", 10);
  Recorder r;
  CHECK(ticks(simulate(g, c, {}, &r).makespan) == 210);
  CHECK(ticks(r.of(0, 1).begin) == 100);
  CHECK(ticks(r.of(0, 3).begin) == 200);
  CHECK(ticks(r.of(0, 4, 1).begin) == 200);
}

TEST_CASE("a wait for an event that was not recorded yet is no wait", "[simulator][engine]") {
  ProgramBuilder b;
  const auto e = b.event();
  const auto s = b.begin_segment("all");
  compute(b, "w", "other").waits(e);
  compute(b, "a").records(e);
  b.end_segment();
  b.call(s);
  b.call(s);  // waits for the record of the first call
  const auto g = alike(1, std::move(b).finish());
  auto c = blank_costs(g);
  set_cost(g, c, "a", 100);
  set_cost(g, c, "w", 10);
  Recorder r;
  simulate(g, c, {}, &r);
  CHECK(ticks(r.of(0, 0, 0).begin) == 0);
  CHECK(ticks(r.of(0, 0, 1).begin) == 100);
}

/// Two ranks with a compute op "c" and then a collective "x".
ExecutionGraph pair_of(OpKind kind) {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) {
      compute(b, "c");
      talk(b, kind, "x", 0, "compute", 0);
    }));
  }
  return each(std::move(programs));
}

TEST_CASE("a ring all-reduce starts with the last member and ends together",
          "[simulator][engine]") {
  const auto g = pair_of(OpKind::kAllReduce);
  auto c = blank_costs(g);
  set_cost_of(g, c, 0, "c", 100);
  set_cost_of(g, c, 1, "c", 250);
  set_cost(g, c, "x", 40);
  Recorder r;
  const auto result = simulate(g, c, {}, &r);
  CHECK(ticks(result.makespan) == 290);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ticks(r.of(rank, 1).ready) == 250);
    CHECK(ticks(r.of(rank, 1).end) == 290);
  }
  CHECK(ticks(r.of(0, 1).begin) == 100);
  CHECK(ticks(result.ranks[0].wait) == 150);
  CHECK(ticks(result.ranks[1].wait) == 0);
  CHECK(result.critical == 1);  // both end at 290; rank 1 is the one that never waits
}

TEST_CASE("a broadcast holds nobody but those that wait for the root", "[simulator][engine]") {
  const auto g = pair_of(OpKind::kBroadcast);  // root is position 0
  auto c = blank_costs(g);
  set_cost_of(g, c, 0, "c", 100);
  set_cost_of(g, c, 1, "c", 250);
  set_cost(g, c, "x", 40);
  Recorder r;
  simulate(g, c, {}, &r);
  CHECK(ticks(r.of(0, 1).end) == 140);  // the root leaves
  CHECK(ticks(r.of(1, 1).end) == 290);  // data is there when rank 1 comes
  set_cost_of(g, c, 1, "c", 10);
  Recorder late;
  simulate(g, c, {}, &late);
  CHECK(ticks(late.of(1, 1).ready) == 100);  // waits for the root
  CHECK(ticks(late.of(1, 1).end) == 140);
}

TEST_CASE("an unequal all-to-all ends rank by rank; a silent rank waits for nobody",
          "[simulator][engine]") {
  std::vector<Program> programs;
  for (int r = 0; r < 3; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) {
      compute(b, "c");
      talk(b, OpKind::kAllToAllV, "x");
    }));
  }
  const auto g = each(std::move(programs));
  auto c = blank_costs(g);
  // Ranks 0 and 1 exchange; rank 2 neither sends nor receives.
  c.needs = {{1}, {0}, {}};
  for (std::size_t i = 0; i < 3; ++i) {
    c.ops[i].needs[1] = static_cast<std::int32_t>(i);
  }
  set_cost_of(g, c, 0, "c", 100);
  set_cost_of(g, c, 1, "c", 200);
  set_cost_of(g, c, 2, "c", 50);
  set_cost_of(g, c, 0, "x", 30);
  set_cost_of(g, c, 1, "x", 60);
  set_cost_of(g, c, 2, "x", 0);
  Recorder r;
  simulate(g, c, {}, &r);
  CHECK(ticks(r.of(0, 1).end) == 230);
  CHECK(ticks(r.of(1, 1).end) == 260);
  CHECK(ticks(r.of(2, 1).end) == 50);
}

TEST_CASE("a send is asynchronous; the receive ends after both were there", "[simulator][engine]") {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) {
      compute(b, "c");
      b.op(r == 0 ? OpKind::kSend : OpKind::kRecv, "x", {1, 7}).communicator(0, 1 - r);
      compute(b, "c");
    }));
  }
  const auto g = each(std::move(programs));
  auto c = blank_costs(g);
  set_cost(g, c, "x", 40);
  set_cost_of(g, c, 0, "c", 100);
  set_cost_of(g, c, 1, "c", 10);
  Recorder r;
  simulate(g, c, {}, &r);
  CHECK(ticks(r.of(0, 2).begin) == 100);  // the sender goes on at once
  CHECK(ticks(r.of(1, 1).begin) == 10);
  CHECK(ticks(r.of(1, 1).ready) == 100);
  CHECK(ticks(r.of(1, 1).end) == 140);
  CHECK(ticks(r.of(1, 2).end) == 150);
}

TEST_CASE("equal ranks fold into one, unequal partners do not", "[simulator][fold]") {
  auto g = alike(8, called_once([&](ProgramBuilder& b) { talk(b, OpKind::kAllReduce, "x"); }));
  CHECK(fold(g).instances.size() == 1);
  CHECK(fold(g, true).instances.size() == 8);
  // Two classes of two, crossed over: {0, 1} run A, 2 and 3 run B and C; groups {0,2} {1,3}. Rank 0
  // meets B and rank 1 meets C, so A has to split.
  g = test::world(4);
  g.communicators[0] = {"pairs", {}, {{0, 2}, {1, 3}}};
  ProgramBuilder a;
  const auto t = a.begin_segment("all");
  talk(a, OpKind::kAllReduce, "x");
  a.end_segment();
  a.call(t);
  const Program program = std::move(a).finish();
  g.programs = {program, program, program};
  g.classes = {{0, {0, 1}}, {1, {2}}, {2, {3}}};
  CHECK(fold(g).instances.size() == 4);
  g.classes = {{0, {0, 1}}, {1, {2, 3}}};
  const Folding two = fold(g);
  REQUIRE(two.instances.size() == 2);
  CHECK(two.groups.size() == 1);
  CHECK(two.groups[0].members == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("compute slows while a transfer of the rank is in flight", "[simulator][engine]") {
  const auto g = alike(4, called_once([&](ProgramBuilder& b) {
                         compute(b, "c");
                         talk(b, OpKind::kAllReduce, "x", 0, "comm");
                       }));
  auto c = blank_costs(g);
  set_cost(g, c, "c", 1000);
  set_cost(g, c, "x", 300);
  c.slowdown = 1.5;
  // Until 300 at rate 1/1.5: 200 done, 800 left at full rate: ends at 1100.
  CHECK(makespan(g, c) == 1100);
  set_cost(g, c, "x", 3000);
  Recorder r;
  simulate(g, c, {}, &r);
  CHECK(ticks(r.of(0, 0).end) == 1500);
}

TEST_CASE("transfers of one rank share its link", "[simulator][network]") {
  auto g = alike(4, called_once([&](ProgramBuilder& b) {
                   talk(b, OpKind::kAllReduce, "x", 0, "one");
                   talk(b, OpKind::kAllReduce, "y", 1, "two");
                 }));
  g.communicators.push_back({"again", {Axis::kData}, {}});
  auto c = blank_costs(g);
  set_cost(g, c, "x", 1000);
  set_cost(g, c, "y", 400);
  Recorder r;
  CHECK(ticks(simulate(g, c, {}, &r).makespan) == 1400);
  CHECK(ticks(r.of(0, 1).end) == 800);   // half rate until done
  CHECK(ticks(r.of(0, 0).end) == 1400);  // 400 done at 800, then alone
  for (auto& share : c.ops[0].link_share) {
    share = 0.5F;  // each needs half of the link: no conflict
  }
  CHECK(makespan(g, c) == 1000);
}

TEST_CASE("a deadlock names the ops that wait", "[simulator][engine]") {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) {
      b.op(OpKind::kRecv, fmt::format("from.{}", 1 - r), {1, 0}).communicator(0, 1 - r);
      b.op(OpKind::kSend, "to", {1, 0}).communicator(0, 1 - r);
    }));
  }
  const auto g = each(std::move(programs));
  const auto c = blank_costs(g);
  CHECK_THROWS_WITH(simulate(g, c), Catch::Contains("recv 'from.1'") &&
                                        Catch::Contains("recv 'from.0'") &&
                                        Catch::Contains("no matching send from rank 1"));
}

TEST_CASE("an unmatched collective names who is missing", "[simulator][engine]") {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) {
      for (int i = 0; i <= r; ++i) {
        talk(b, OpKind::kAllReduce, fmt::format("sum.{}", i));
      }
    }));
  }
  const auto g = each(std::move(programs));
  CHECK_THROWS_WITH(simulate(g, blank_costs(g)),
                    Catch::Contains("'sum.1'") && Catch::Contains("waits for rank 0"));
}

TEST_CASE("different collectives at the same place are an error", "[simulator][engine]") {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) {
      talk(b, r == 0 ? OpKind::kAllReduce : OpKind::kAllGather, "x");
    }));
  }
  const auto g = each(std::move(programs));
  CHECK_THROWS_WITH(simulate(g, blank_costs(g)),
                    Catch::Contains("all_reduce") && Catch::Contains("all_gather"));
}

}  // namespace
}  // namespace stepcast::simulator
