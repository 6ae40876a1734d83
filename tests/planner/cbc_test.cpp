#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "planner/embedding/search.h"
#include "tests/planner/placement_milp.h"
#include "tests/planner/problems.h"

using namespace stepcast;
using namespace stepcast::planner;

TEST_CASE("CBC solves a known program", "[planner][cbc]") {
  if (!has_cbc()) {
    WARN("skipped: cbc is not installed");
    return;
  }
  // max 5x + 4y, 6x + 4y <= 24, x + 2y <= 6, whole numbers: (4, 0) gives 20; (3, 1) gives 19.
  Milp m;
  const std::size_t x = m.variable({-5, 0, 10, true});
  const std::size_t y = m.variable({-4, 0, 10, true});
  m.rows = {{{{x, 6}, {y, 4}}, '<', 24}, {{{x, 1}, {y, 2}}, '<', 6}};
  const auto s = solve_with_cbc(m, 10);
  REQUIRE(s);
  CHECK(s->optimal);
  CHECK(s->objective == Approx(-20));
  CHECK(s->values[x] == Approx(4));
  CHECK(s->values[y] == Approx(0).margin(1e-9));
}

TEST_CASE("the search equals CBC's optimum wherever CBC proves one", "[planner][cbc][oracle]") {
  if (!has_cbc()) {
    WARN("skipped: cbc is not installed");
    return;
  }
  std::mt19937 rng(23);
  int proven = 0;
  for (int i = 0; i < 16; ++i) {
    const std::int32_t ranks = i % 2 == 0 ? 4 : 2;
    PlacementProblem p =
        testing::random_problem(rng, ranks, static_cast<std::size_t>(5 + i % 3), i % 3 == 0);
    if (i % 4 == 3) {  // equal tables: bounds by mean loads are weakest there
      std::fill(p.tables.begin(), p.tables.end(), p.tables.front());
    }
    const PlacementMilp m = milp_of(p);
    const auto exact = solve_with_cbc(m.milp, 5);
    if (!exact || !exact->optimal) {
      continue;
    }
    const Placement theirs = m.placement(p, *exact);
    CHECK(fits(p, theirs));
    const double optimum = load_seconds(objective_of(p, theirs)) * 1e3;
    CHECK(optimum == Approx(exact->objective + load_seconds(p.constant) * 1e3).epsilon(1e-6));
    const SearchResult found = search(p, {.good_enough = 0, .effort = SearchEffort::kThorough});
    REQUIRE_FALSE(found.best.empty());
    CAPTURE(i, ranks, p.tables.size());
    CHECK(load_seconds(found.best.front().first) * 1e3 == Approx(optimum).epsilon(1e-9));
    CHECK(load_seconds(found.bound.value) * 1e3 <= optimum * (1 + 1e-9));
    ++proven;
  }
  CHECK(proven >= 6);
}
