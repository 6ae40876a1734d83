// Laws that hold for every step, checked on random ones.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "simulator/reports/breakdown.h"
#include "simulator/reports/critical_path.h"
#include "simulator/reports/executed_graph.h"
#include "tests/simulator/random_step.h"

namespace stepcast::simulator {
namespace {

using test::random_step;
using test::RandomStep;

bool same(const std::vector<OpSpan>& a, const std::vector<OpSpan>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const OpSpan& x, const OpSpan& y) {
    return x.rank == y.rank && x.ref == y.ref && x.issued == y.issued && x.begin == y.begin &&
           x.ready == y.ready && x.end == y.end;
  });
}

TEST_CASE("two runs give the same spans", "[simulator][property]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 41)));
  const int mode = GENERATE(0, 1, 2, 3);
  const RandomStep step = random_step(seed, mode);
  Timeline first;
  Timeline second;
  const auto a = simulate(step.graph, step.costs, {}, &first);
  const auto b = simulate(step.graph, step.costs, {}, &second);
  CHECK(a.makespan == b.makespan);
  CHECK(same(first.ops(), second.ops()));
}

TEST_CASE("pre-summed and op by op agree to the tick", "[simulator][property]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 201)));
  const int mode = GENERATE(0, 1, 2, 3);
  CAPTURE(seed, mode);
  const RandomStep step = random_step(seed, mode);
  const auto fast = simulate(step.graph, step.costs);
  const auto slow = simulate(step.graph, step.costs,
                             {.presum = false, .step = 0, .steady = false, .otherwise = {}});
  Timeline timeline;
  const auto watched = simulate(step.graph, step.costs, {}, &timeline);
  CHECK(fast.makespan == slow.makespan);
  CHECK(fast.makespan == watched.makespan);
  for (std::size_t i = 0; i < fast.ranks.size(); ++i) {
    CHECK(fast.ranks[i].end == slow.ranks[i].end);
    CHECK(fast.ranks[i].compute == slow.ranks[i].compute);
    CHECK(fast.ranks[i].end == watched.ranks[i].end);
    CHECK(fast.ranks[i].compute == watched.ranks[i].compute);
  }
  CHECK(timeline.ops().size() == fast.ops);
}

TEST_CASE("a fold changes nothing when ranks are equal", "[simulator][property][fold]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 101)));
  const int mode = GENERATE(0, 1, 2, 3);
  CAPTURE(seed, mode);
  const RandomStep folded = random_step(seed, mode);
  const RandomStep all = random_step(seed, mode, true);
  const auto a = simulate(folded.graph, folded.costs);
  const auto b = simulate(all.graph, all.costs);
  CHECK(all.costs.ops.size() == static_cast<std::size_t>(all.graph.ranks()));
  CHECK(a.makespan == b.makespan);
  for (const RankSummary& r : b.ranks) {
    const auto i = static_cast<std::size_t>(
        folded.costs.folding.instance_of[static_cast<std::size_t>(r.rank)]);
    CHECK(r.end == a.ranks[i].end);
  }
}

TEST_CASE("ops follow each other, breakdowns and the critical path are as long as the step",
          "[simulator][property]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 201)));
  const int mode = GENERATE(0, 1, 2, 3);
  CAPTURE(seed, mode);
  const RandomStep step = random_step(seed, mode);
  Timeline timeline;
  const auto result = simulate(step.graph, step.costs, {}, &timeline);
  // Nothing begins before it is issued.
  std::map<std::pair<std::int32_t, int>, std::int64_t> free;
  for (const OpSpan& s : timeline.ops()) {
    const Program& program = step.graph.program_of(s.rank);
    CAPTURE(s.rank, s.ref.call, s.ref.op, program.name(program.ops[s.ref.op]));
    auto& reached = free[{s.rank, program.ops[s.ref.op].stream}];
    CHECK(ticks(s.begin) >= reached + step.costs.dispatch);
    CHECK(ticks(s.begin) >= ticks(s.issued) + step.costs.dispatch);
    CHECK(s.ready >= s.begin);
    CHECK(s.end >= s.ready);
    reached = ticks(s.end);
  }
  for (const RankSummary& r : result.ranks) {
    const Breakdown parts = breakdown(step.graph.program_of(r.rank), timeline, r.rank,
                                      {.begin = SimTime{0},
                                       .end = result.makespan,
                                       .rank_end = r.end,
                                       .shares_core = step.costs.shares_core});
    CHECK(parts.total() == result.makespan);
    CHECK(parts.compute <= r.compute);
  }
  const ExecutedGraph executed = executed_graph(step.graph, step.costs, timeline);
  CHECK(executed.unexplained == 0);
  for (const auto& e : executed.edges) {
    CAPTURE(e.from, e.to, e.weight);
    CHECK(executed.time[e.to] >= executed.time[e.from] + e.weight);
  }
  const CriticalPath path = critical_path(step.graph, step.costs, timeline);
  CHECK(path.length == result.makespan);
  std::int64_t reached = 0;
  for (const auto& piece : path.pieces) {
    CHECK(ticks(piece.begin) == reached);
    reached = ticks(piece.end);
  }
  CHECK(reached == ticks(result.makespan));
  CHECK(ticks(path.host) + ticks(path.compute) + ticks(path.transfer) + ticks(path.gap) == reached);
  CHECK(*std::min_element(path.slack.begin(), path.slack.end()) >= SimTime{0});
}

TEST_CASE("longest op <= step <= sum of everything", "[simulator][property]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 101)));
  const int mode = GENERATE(0, 2, 3);
  CAPTURE(seed, mode);
  const RandomStep step = random_step(seed, mode);
  Timeline timeline;
  const auto result = simulate(step.graph, step.costs, {}, &timeline);
  std::int64_t sum = static_cast<std::int64_t>(result.ranks.size()) * step.costs.step;
  std::int64_t longest = 0;
  for (const OpSpan& s : timeline.ops()) {
    const auto i =
        static_cast<std::size_t>(step.costs.folding.instance_of[static_cast<std::size_t>(s.rank)]);
    const std::int64_t cost = step.costs.ops[i].ticks[s.ref.op];
    sum += cost + step.costs.issue + step.costs.dispatch;
    if (step.graph.program_of(s.rank).ops[s.ref.op].kind != OpKind::kSend) {
      longest = std::max(longest, cost);
    }
  }
  CHECK(ticks(result.makespan) <= sum);
  CHECK(ticks(result.makespan) >= longest);
}

TEST_CASE("a machine twice as fast takes half the time", "[simulator][property]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 101)));
  const int mode = GENERATE(0, 1, 2, 3);
  CAPTURE(seed, mode);
  const RandomStep step = random_step(seed, mode);
  StepCosts slow = step.costs;
  // 1000 times finer ticks, so that rounding of shared links stays far below the check.
  StepCosts fine = step.costs;
  for (std::size_t i = 0; i < fine.ops.size(); ++i) {
    for (std::size_t o = 0; o < fine.ops[i].ticks.size(); ++o) {
      fine.ops[i].ticks[o] *= 1000;
      slow.ops[i].ticks[o] *= 2000;
    }
  }
  for (auto* c : {&fine, &slow}) {
    const std::int64_t k = c == &fine ? 1000 : 2000;
    c->issue *= k;
    c->dispatch *= k;
    c->step *= k;
  }
  const auto a = ticks(simulate(step.graph, fine).makespan);
  const auto b = ticks(simulate(step.graph, slow).makespan);
  CHECK(std::abs(b - 2 * a) <= 200);
}

TEST_CASE("less work is never slower when nothing is shared", "[simulator][property]") {
  const auto seed = static_cast<std::uint32_t>(GENERATE(range(1, 101)));
  CAPTURE(seed);
  RandomStep step = random_step(seed, 0);
  for (auto& row : step.costs.ops) {
    std::fill(row.path.begin(), row.path.end(), -1);  // no shared links: pure maxima and sums
  }
  const auto before = simulate(step.graph, step.costs).makespan;
  for (auto& row : step.costs.ops) {
    for (std::size_t o = 0; o < row.ticks.size(); o += 3) {
      row.ticks[o] /= 2;
    }
  }
  CHECK(simulate(step.graph, step.costs).makespan <= before);
}

}  // namespace
}  // namespace stepcast::simulator
