#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "models/cost_model.h"
#include "simulator/arrival.h"
#include "simulator/intervals.h"
#include "tests/simulator/graphs.h"

namespace stepcast::simulator {
namespace {

using test::alike;
using test::compute;
using test::set_cost;
using test::talk;

constexpr std::int64_t kSegment = 1'000'000;

/// `rounds` times: one op of kSegment, then an all-reduce of no duration.
ExecutionGraph rounds_of(std::int32_t ranks, int rounds) {
  ProgramBuilder b;
  const auto s = b.begin_segment("rounds");
  for (int i = 0; i < rounds; ++i) {
    compute(b, "work");
    talk(b, OpKind::kAllReduce, "sum");
  }
  b.end_segment();
  b.call(s);
  return alike(ranks, std::move(b).finish());
}

TEST_CASE("the last of unequal ranks", "[simulator][straggler]") {
  // Equal ranks, listed one by one or together: one formula. d_8 = 1.4345.
  const std::vector<Arrival> one_by_one(8, {1000.0, 100.0, 1});
  const Arrival together{1000.0, 100.0, 8};
  CHECK(expected_last(one_by_one) == 1143);
  CHECK(expected_last({&together, 1}) == 1143);
  // A rank ten spreads behind the others is the last for certain.
  CHECK(expected_last(std::vector<Arrival>{{1000, 100, 7}, {2000, 100, 1}}) == 2000);
  CHECK(expected_last(std::vector<Arrival>{{1000, 0, 7}, {900, 0, 1}}) == 1000);
  // Two normals, means 0 and half a spread: exact E max = m Phi(m/a) + a phi(m/a) with a = sqrt(2)
  // s and m = 0.5 s: 0.5 * 0.6382 + 1.4142 * 0.3748 = 0.849 s. The formula is within 4 % of the
  // wait at n = 2.
  CHECK(expected_last(std::vector<Arrival>{{1000, 100, 1}, {1050, 100, 1}}) ==
        Approx(1085).margin(4));
}

TEST_CASE("folded and unfolded ranks get the same wait", "[simulator][straggler]") {
  const auto graph = rounds_of(16, 20);
  auto folded = blank_costs(graph);
  auto all = blank_costs(graph, true);
  for (StepCosts* costs : {&folded, &all}) {
    set_cost(graph, *costs, "work", kSegment);
    costs->straggler = {.log_sigma = 0.05, .rho = 0.2};
  }
  const auto wait = ticks(simulate(graph, folded).makespan) - 20 * kSegment;
  CHECK(wait > 0);
  CHECK(std::abs(ticks(simulate(graph, all).makespan) - 20 * kSegment - wait) <= 20);
}

TEST_CASE("folded ranks wait as unfolded ranks with jitter do", "[simulator][straggler]") {
  const int n = GENERATE(8, 32, 128, 1024);
  const double rho = GENERATE(0.0, 0.4);
  CAPTURE(n, rho);
  const double sigma = 0.05;
  // The sampling error of the mean wait over K rounds is about 0.6 sigma / sqrt(K), and the common
  // part adds sqrt(rho) sigma / sqrt(K) (removed below): K = 800 leaves about 1.5 % of the wait at
  // n = 8.
  const int rounds = n <= 32 ? 4000 : 800;
  const auto graph = rounds_of(n, rounds);

  auto folded = blank_costs(graph);
  set_cost(graph, folded, "work", kSegment);
  const auto plain = ticks(simulate(graph, folded).makespan);
  CHECK(plain == rounds * kSegment);
  folded.straggler = {.log_sigma = sigma, .rho = rho};
  const double wait = static_cast<double>(ticks(simulate(graph, folded).makespan) - plain);

  auto all = blank_costs(graph, true);
  set_cost(graph, all, "work", kSegment);
  test::jitter(graph, all, sigma, rho, 7);
  const auto result = simulate(graph, all);
  // Ranks waited while they did not compute; the common part shifts compute and is no wait.
  double compute = 0;
  for (const RankSummary& r : result.ranks) {
    compute += static_cast<double>(ticks(r.compute));
  }
  const double sampled = static_cast<double>(ticks(result.makespan)) - compute / n;
  CHECK(wait == Approx(sampled).epsilon(0.03));
  // And the closed form itself.
  CHECK(wait == Approx(rounds * kSegment * sigma * std::sqrt(1 - rho) * models::expected_maximum(n))
                    .margin(rounds));
}

TEST_CASE("no spread, or a spread all ranks share, makes no wait", "[simulator][straggler]") {
  const auto graph = rounds_of(64, 50);
  auto costs = blank_costs(graph);
  set_cost(graph, costs, "work", kSegment);
  costs.straggler = {.log_sigma = 0, .rho = 0};
  CHECK(ticks(simulate(graph, costs).makespan) == 50 * kSegment);
  costs.straggler = {.log_sigma = 0.1, .rho = 1};
  CHECK(ticks(simulate(graph, costs).makespan) == 50 * kSegment);
  // Unfolded, with rho 1: every rank draws the same.
  auto all = blank_costs(graph, true);
  set_cost(graph, all, "work", kSegment);
  test::jitter(graph, all, 0.1, 1, 3);
  for (const RankSummary& r : simulate(graph, all).ranks) {
    CHECK(ticks(r.wait) == 0);
  }
}

TEST_CASE("an interval widens with the residual and repeats with its seed",
          "[simulator][interval]") {
  const auto graph = rounds_of(4, 1);
  auto costs = blank_costs(graph);
  set_cost(graph, costs, "work", kSegment * 1000);
  const StepInterval exact = step_interval(graph, costs);
  CHECK(exact.p5 == exact.p95);
  costs.ops[0].log_sigma[0] = 0.1F;
  const StepInterval wide = step_interval(graph, costs, {.samples = 2000, .seed = 5});
  // One op: the step is lognormal, quantiles exp(-+1.645 * 0.1) = 0.848 and 1.179.
  CHECK(wide.p5 / exact.median == Approx(0.848).epsilon(0.02));
  CHECK(wide.median / exact.median == Approx(1).epsilon(0.02));
  CHECK(wide.p95 / exact.median == Approx(1.179).epsilon(0.02));
  const StepInterval again = step_interval(graph, costs, {.samples = 2000, .seed = 5});
  CHECK(again.p5 == wide.p5);
  CHECK(again.p95 == wide.p95);
}

}  // namespace
}  // namespace stepcast::simulator
