// Ranks whose host and ops take turns on cores. Times are ticks; every expected number is derived
// beside its check.
#include <catch2/catch.hpp>

#include "tests/simulator/graphs.h"

namespace stepcast::simulator {
namespace {

using test::alike;
using test::called_once;
using test::chain;
using test::compute;
using test::makespan;
using test::Recorder;
using test::set_cost;
using test::set_cost_of;
using test::talk;

TEST_CASE("on a shared core times add", "[simulator][core]") {
  const auto g = alike(2, called_once([&](ProgramBuilder& b) {
                         compute(b, "a");
                         compute(b, "b", "other");
                         talk(b, OpKind::kAllReduce, "x", 0, "comm");
                       }));
  auto c = blank_costs(g);
  set_cost(g, c, "a", 100);
  set_cost(g, c, "b", 50);
  set_cost(g, c, "x", 400);
  c.issue = 10;
  c.dispatch = 5;
  c.shares_core = true;
  // Paced: host 30, then a (5 + 100), b (5 + 50) = 190; the transfer is issued at 30, begins at 35.
  CHECK(makespan(g, c) == 435);
  set_cost(g, c, "x", 40);
  CHECK(makespan(g, c) == 190);
  // By the CPU: its 40 come on top.
  c.collectives_hold_core = true;
  CHECK(makespan(g, c) == 190 + 40);
  c.step = 1000;
  CHECK(makespan(g, c) == 1190 + 40);
}

TEST_CASE("on a shared core the host goes first until a queue is full", "[simulator][core]") {
  const auto g = chain(3);
  auto c = blank_costs(g);
  set_cost(g, c, "op", 100);
  c.issue = 10;
  c.queue_depth = 2;
  c.shares_core = true;
  Recorder r;
  // Host 0..20 (two issued), op 0 20..120, host 120..130 (room for the third), op 1 130..230, op 2.
  CHECK(ticks(simulate(g, c, {}, &r).makespan) == 330);
  CHECK(ticks(r.of(0, 0).begin) == 20);
  CHECK(ticks(r.of(0, 2).issued) == 130);
  CHECK(ticks(r.of(0, 1).begin) == 130);
}

TEST_CASE("ranks that share a core take turns, each until it has to wait", "[simulator][core]") {
  // Two ops, a collective of both ranks, another op; rank 1 takes twice as long as rank 0.
  const auto g = alike(2, called_once([&](ProgramBuilder& b) {
                         compute(b, "a");
                         compute(b, "b");
                         talk(b, OpKind::kAllReduce, "x");
                         compute(b, "c");
                       }));
  auto costs = blank_costs(g, true);
  for (const std::size_t r : {0, 1}) {
    for (const char* name : {"a", "b", "c"}) {
      set_cost_of(g, costs, r, name, r == 0 ? 100 : 200);
    }
  }
  set_cost(g, costs, "x", 30);
  costs.shares_core = true;
  CHECK(makespan(g, costs) == 400 + 30 + 200);  // a core each: the slower rank
  costs.core_of = {0, 0};
  Recorder r;
  // 0: a 0..100, b 100..200; 1: a 200..400, b 400..600; x 600..630; then c of both, 300 in all.
  CHECK(ticks(simulate(g, costs, {}, &r).makespan) == 600 + 30 + 300);
  CHECK(ticks(r.of(0, 1).begin) == 100);
  CHECK(ticks(r.of(1, 0).begin) == 200);
  // A transfer by the CPU takes the core once for both.
  costs.collectives_hold_core = true;
  CHECK(makespan(g, costs) == 600 + 30 + 300);
}

}  // namespace
}  // namespace stepcast::simulator
