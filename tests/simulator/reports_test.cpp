#include <catch2/catch.hpp>

#include "simulator/reports/breakdown.h"
#include "simulator/reports/critical_path.h"
#include "tests/simulator/graphs.h"

namespace stepcast::simulator {
namespace {

using test::alike;
using test::called_once;
using test::compute;
using test::each;
using test::set_cost;
using test::set_cost_of;
using test::talk;

/// Two ranks; each computes "a", then an all-reduce on its own stream beside "b", then "c".
ExecutionGraph overlapped() {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    ProgramBuilder b;
    const auto ready = b.event();
    const auto reduced = b.event();
    const auto s = b.begin_segment("all");
    compute(b, "a").records(ready);
    talk(b, OpKind::kAllReduce, "sum", 0, "comm").waits(ready).records(reduced);
    compute(b, "b");
    compute(b, "c").waits(reduced);
    b.end_segment();
    b.call(s);
    programs.push_back(std::move(b).finish());
  }
  return each(std::move(programs));
}

TEST_CASE("a breakdown tells exposed from hidden communication", "[simulator][reports]") {
  const auto g = overlapped();
  auto costs = blank_costs(g);
  set_cost_of(g, costs, 0, "a", 100);
  set_cost_of(g, costs, 1, "a", 180);
  set_cost(g, costs, "sum", 70);
  set_cost(g, costs, "b", 50);
  set_cost(g, costs, "c", 30);
  Timeline timeline;
  const auto result = simulate(g, costs, {}, &timeline);
  // Rank 0: a 0-100, b 100-150, idle and waiting 150-180, transfer 180-250, c 250-280.
  // Rank 1: a 0-180, b 180-230, transfer 180-250 of which 20 are exposed, c 250-280.
  CHECK(ticks(result.makespan) == 280);
  const auto of = [&](std::int32_t rank) {
    return breakdown(g.program_of(rank), timeline, rank,
                     {.begin = SimTime{0}, .end = result.makespan, .rank_end = result.makespan});
  };
  CHECK(ticks(of(0).compute) == 180);
  CHECK(ticks(of(0).bubble) == 30);
  CHECK(ticks(of(0).exposed_communication) == 70);
  CHECK(ticks(of(1).compute) == 260);
  CHECK(ticks(of(1).bubble) == 0);
  CHECK(ticks(of(1).exposed_communication) == 20);
  CHECK(ticks(of(1).host) + ticks(of(1).other) == 0);
  CHECK(result.critical == 1);

  const CriticalPath path = critical_path(g, costs, timeline);
  // a of rank 1 (180), the transfer (70), c (30).
  CHECK(ticks(path.compute) == 210);
  CHECK(ticks(path.transfer) == 70);
  // a of rank 0 could end 80 later, b of rank 0 100 later (150 -> 250), b of rank 1 20.
  for (std::size_t i = 0; i < timeline.ops().size(); ++i) {
    const OpSpan& s = timeline.ops()[i];
    const std::string& name = g.program_of(s.rank).name(g.program_of(s.rank).ops[s.ref.op]);
    if (name == "a") {
      CHECK(ticks(path.slack[i]) == (s.rank == 0 ? 80 : 0));
    } else if (name == "b") {
      CHECK(ticks(path.slack[i]) == (s.rank == 0 ? 100 : 20));
    } else {
      CHECK(ticks(path.slack[i]) == 0);
    }
  }
}

TEST_CASE("a breakdown finds a slow host, dispatch gaps and the fixed cost of a step",
          "[simulator][reports]") {
  const auto g = alike(1, called_once([&](ProgramBuilder& b) {
                         for (int i = 0; i < 3; ++i) {
                           compute(b, "op");
                         }
                       }));
  auto costs = blank_costs(g);
  set_cost(g, costs, "op", 100);
  costs.issue = 150;
  costs.dispatch = 7;
  costs.step = 40;
  Timeline timeline;
  const auto result = simulate(g, costs, {}, &timeline);
  // Issued at 190, 340, 490; each begins 7 later and takes 100: the step ends at 597.
  // Host: 190 + (340 - 297) + (490 - 447) = 276. Dispatch: 3 * 7.
  CHECK(ticks(result.makespan) == 597);
  const Breakdown parts =
      breakdown(g.programs[0], timeline, 0,
                {.begin = SimTime{0}, .end = result.makespan, .rank_end = result.makespan});
  CHECK(ticks(parts.compute) == 300);
  CHECK(ticks(parts.host) == 276);
  CHECK(ticks(parts.other) == 21);
  // On a shared core the host's time is its own: 40 + 450, then each op's dispatch of 7 shows as
  // other.
  costs.shares_core = true;
  Timeline shared;
  const auto on_core = simulate(g, costs, {}, &shared);
  CHECK(ticks(on_core.makespan) == 490 + 3 * 107);
  const Breakdown own = breakdown(g.programs[0], shared, 0,
                                  {.begin = SimTime{0},
                                   .end = on_core.makespan,
                                   .rank_end = on_core.makespan,
                                   .shares_core = true});
  CHECK(ticks(own.host) == 490);
  CHECK(ticks(own.compute) == 300);
  CHECK(ticks(own.other) == 21);
}

TEST_CASE("a rank that is done early waits for the others", "[simulator][reports]") {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.push_back(called_once([&](ProgramBuilder& b) { compute(b, "op"); }));
  }
  const auto g = each(std::move(programs));
  auto costs = blank_costs(g);
  set_cost_of(g, costs, 0, "op", 100);
  set_cost_of(g, costs, 1, "op", 300);
  Timeline timeline;
  const auto result = simulate(g, costs, {}, &timeline);
  const Breakdown parts =
      breakdown(g.programs[0], timeline, 0,
                {.begin = SimTime{0}, .end = result.makespan, .rank_end = result.ranks[0].end});
  CHECK(ticks(parts.compute) == 100);
  CHECK(ticks(parts.bubble) == 200);
}

}  // namespace
}  // namespace stepcast::simulator
