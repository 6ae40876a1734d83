// Searches of more than 100 tables, which take another way than those of few.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>

#include "core/config/config.h"
#include "planner/embedding/embedding_prices.h"
#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/internal/smooth_descent.h"
#include "planner/embedding/plan_space.h"
#include "planner/embedding/search.h"
#include "tests/planner/many_tables.h"
#include "tests/planner/problems.h"

using namespace stepcast;
using namespace stepcast::planner;
using stepcast::planner::testing::brute_force;
using stepcast::planner::testing::check_placement;
using stepcast::planner::testing::random_problem;

namespace {

/// The same problem with so many tables more that it counts as large: they load nothing, so the
/// optimum is that of the problem without them.
PlacementProblem with_idle_tables(PlacementProblem p) {
  PlacementOption idle;
  idle.group = p.ranks;
  for (int i = 0; i < 101; ++i) {
    p.tables.push_back({"idle" + std::to_string(i), {idle}});
  }
  return p;
}

}  // namespace

TEST_CASE("the bound that caps phases is never above the optimum",
          "[planner][bound][oracle][property][many]") {
  std::mt19937 rng(61);
  int sharper = 0;
  int checked = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int32_t ranks = i % 4 == 0 ? 4 : i % 4 == 1 ? 2 : 3;
    const PlacementProblem small = random_problem(rng, ranks, ranks == 4 ? 3 : 4, i % 3 == 0);
    const Femtoseconds optimum = brute_force(small);
    if (optimum < 0) {
      continue;
    }
    const PlacementProblem p = with_idle_tables(small);
    const Femtoseconds root = internal::PhaseBound(p, 0).raise(optimum * 2, optimum * 2, 0);
    for (const std::uint64_t nodes : {4, 40, 400}) {
      for (const double above : {1.0, 1.3}) {
        const auto in_hand = static_cast<Femtoseconds>(static_cast<double>(optimum) * above);
        internal::PhaseBound phases(p, 4);
        const Femtoseconds found = phases.raise(in_hand, in_hand, nodes);
        CAPTURE(i, ranks, nodes, above, optimum);
        REQUIRE(found <= optimum);
        ++checked;
        sharper += found > root + root / 100 ? 1 : 0;
        // It goes on: no lower with more nodes, and as true for a better plan in hand.
        REQUIRE(phases.raise(optimum, optimum, nodes) >= std::min(found, optimum));
        REQUIRE(phases.raise(optimum, optimum, nodes) <= optimum);
      }
    }
  }
  CHECK(sharper > checked / 4);
}

TEST_CASE("a phase that one piece decides is seen by the bound", "[planner][bound][many]") {
  // 4 ranks, 120 tables of 1 ms on one rank: 30 ms a rank. One table more takes 50 ms on one rank,
  // or 2 ms on all. On one rank the others need (120 - 0) / 3 = 40 ms each or less, so 50 ms in
  // all; on all ranks 30 + 2 = 32. The mean over ranks alone says (120 + 50) / 4 = 42.5 or 32.
  constexpr Femtoseconds kMs = 1'000'000'000'000;
  PlacementProblem p;
  p.ranks = 4;
  PlacementOption one;
  one.load[kLookup] = kMs;
  for (int t = 0; t < 120; ++t) {
    p.tables.push_back({"t" + std::to_string(t), {one}});
  }
  PlacementOption whole;
  whole.load[kLookup] = 50 * kMs;
  p.tables.push_back({"large", {whole}});
  const auto bound = [&] {
    return static_cast<double>(internal::PhaseBound(p, 0).raise(200 * kMs, 200 * kMs, 50));
  };
  CHECK(bound() == Approx(50.0 * kMs).epsilon(1e-6));
  PlacementOption all;
  all.group = 4;
  all.load[kLookup] = 2 * kMs;
  p.tables.back().options.push_back(all);
  CHECK(bound() == Approx(32.0 * kMs).epsilon(1e-6));
}

TEST_CASE("the search of many tables keeps every piece and capacity and is near the optimum",
          "[planner][search][oracle][many]") {
  std::mt19937 rng(67);
  int feasible = 0;
  double above = 0;
  for (int i = 0; i < 60; ++i) {
    const std::int32_t ranks = i % 3 == 0 ? 4 : i % 3 == 1 ? 2 : 3;
    const PlacementProblem small = random_problem(rng, ranks, ranks == 4 ? 3 : 4, i % 2 == 0);
    const Femtoseconds optimum = brute_force(small);
    const PlacementProblem p = with_idle_tables(small);
    const SearchResult found = search(p, {});
    CAPTURE(i, ranks, optimum);
    if (optimum < 0) {
      CHECK(found.best.empty());
      continue;
    }
    ++feasible;
    REQUIRE_FALSE(found.best.empty());
    const auto& [objective, placement] = found.best.front();
    check_placement(p, placement);
    REQUIRE(fits(p, placement));
    REQUIRE(objective == objective_of(p, placement));
    REQUIRE(objective >= optimum);
    REQUIRE(found.bound.value <= optimum);
    above += static_cast<double>(objective) / static_cast<double>(optimum) - 1;
  }
  CHECK(feasible >= 40);
  CHECK(above / feasible < 0.02);
}

TEST_CASE("smooth descents place a fixed choice evenly", "[planner][search][many]") {
  // 64 tables of 2 ms and 64 of 1 ms in the lookup, of 1 and 2 in the exchange, on 16 ranks: four
  // of each kind a rank, 12 ms in both phases, which is the mean.
  constexpr Femtoseconds kMs = 1'000'000'000'000;
  PlacementProblem p;
  p.ranks = 16;
  for (int t = 0; t < 128; ++t) {
    PlacementOption o;
    o.load[kLookup] = t % 2 == 0 ? 2 * kMs : kMs;
    o.load[kExchange] = t % 2 == 0 ? kMs : 2 * kMs;
    o.bytes[0] = 10;
    p.tables.push_back({"t" + std::to_string(t), {o}});
  }
  p.tiers = {{"hbm", 1, std::vector<std::int64_t>(16, 80)}};  // room for eight tables, no more
  internal::SmoothDescent smooth(p, 0.024);
  const Placement found = smooth.run({}, 1, {});
  check_placement(p, found);
  CHECK(fits(p, found));
  CHECK(objective_of(p, found) == 24 * kMs);
}

TEST_CASE("every space of a job has the same options, whatever it is priced by",
          "[planner][prices][many]") {
  // A placement found in one space is looked up in the other for the bound of the step. Blocks of
  // rows are offered by lookups, of which arrival is priced by lines.
  const std::uint64_t seed = GENERATE(range(1, 6));
  const Job job =
      testing::many_tables(300, 128, config::load_system("dgx-h100", {STEPCAST_SOURCE_DIR}), seed);
  const models::CostModel model(job.system, job.calibration);
  const EmbeddingPrices prices(job, model);
  const PlanSpace near(job, prices, {.group_sizes = {8}});
  const PlanSpace below(job, prices, {.group_sizes = {8}, .fit = LineFit::kBelow});
  for (std::size_t t = 0; t < 300; ++t) {
    const auto& a = near.problem().tables[t].options;
    const auto& b = below.problem().tables[t].options;
    CAPTURE(seed, t);
    REQUIRE(a.size() == b.size());
    for (std::size_t o = 0; o < a.size(); ++o) {
      CHECK(a[o].label == b[o].label);
    }
  }
}

TEST_CASE("more effort is never worse, with many tables too", "[planner][search][property][many]") {
  std::mt19937 rng(71);
  int gained = 0;
  for (int i = 0; i < 6; ++i) {
    const PlacementProblem p = random_problem(rng, i % 2 == 0 ? 8 : 16, 120, i % 3 == 0);
    CAPTURE(i);
    const SearchResult quick = search(p, {.effort = SearchEffort::kQuick});
    const SearchResult normal = search(p, {});
    const SearchResult thorough = search(p, {.effort = SearchEffort::kThorough});
    REQUIRE_FALSE(quick.best.empty());
    CHECK(normal.best.front().first <= quick.best.front().first);
    CHECK(thorough.best.front().first <= normal.best.front().first);
    gained += thorough.best.front().first < quick.best.front().first ? 1 : 0;
  }
  CHECK(gained > 0);
}

TEST_CASE("more memory is never slower, beyond what the gap allows",
          "[planner][search][memory][property][many]") {
  std::mt19937 rng(73);
  int tight = 0;
  for (int i = 0; i < 5; ++i) {
    PlacementProblem p = random_problem(rng, 8, 130, false);
    std::int64_t bytes = 0;  // of all tables, whole
    for (PlacementTable& t : p.tables) {
      bytes += t.options.front().bytes[0];
      // Copies everywhere are fast and large: what there is room for is what memory decides.
      for (Femtoseconds& load : t.options.back().load) {
        load /= 20;
      }
    }
    double least = std::numeric_limits<double>::infinity();
    double first = 0;
    for (const double room : {1.03, 1.06, 1.1, 1.2, 1.4, 2.0, 9.0}) {
      p.tiers.front().capacity.assign(
          8, static_cast<std::int64_t>(static_cast<double>(bytes) / 8 * room));
      const SearchResult found = search(p, {});
      CAPTURE(i, room);
      REQUIRE_FALSE(found.best.empty());
      REQUIRE(fits(p, found.best.front().second));
      const auto objective = static_cast<double>(found.best.front().first);
      CHECK(objective <= least * 1.005);
      least = std::min(least, objective);
      first = first == 0 ? objective : first;
    }
    tight += first > least * 1.01 ? 1 : 0;
  }
  CHECK(tight > 0);  // memory decided somewhere
}

TEST_CASE("the clock and the seed act on many tables", "[planner][search][many]") {
  std::mt19937 rng(79);
  const PlacementProblem p = random_problem(rng, 16, 150, false);
  double now = 0;
  SearchOptions timed{.time_limit = 1.0, .good_enough = 0};
  timed.clock = [&now] { return now += 0.01; };
  const SearchResult cut = search(p, timed);
  REQUIRE_FALSE(cut.best.empty());
  CHECK(now < 1.2);  // seconds of this clock, which moves each time it is asked
  const auto groups = [](const SearchResult& of) {
    std::vector<std::vector<std::int32_t>> all;
    for (const Choice& c : of.best.front().second) {
      all.push_back(c.groups);
    }
    return all;
  };
  int differ = 0;
  for (int i = 0; i < 4; ++i) {
    const PlacementProblem other = random_problem(rng, 32, 120 + 40 * i, false);
    const auto one = groups(search(other, {.seed = 1, .effort = SearchEffort::kThorough}));
    CHECK(one == groups(search(other, {.seed = 1, .effort = SearchEffort::kThorough})));
    differ += one != groups(search(other, {.seed = 2, .effort = SearchEffort::kThorough})) ? 1 : 0;
  }
  CHECK(differ > 0);
}
