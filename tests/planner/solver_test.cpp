#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "planner/embedding/bound.h"
#include "planner/embedding/internal/annealing.h"
#include "planner/embedding/internal/phase_bound.h"
#include "planner/embedding/placement_state.h"
#include "planner/embedding/search.h"
#include "tests/planner/problems.h"

using namespace stepcast;
using namespace stepcast::planner;
using stepcast::planner::testing::brute_force;
using stepcast::planner::testing::check_placement;
using stepcast::planner::testing::random_problem;

namespace {

constexpr Femtoseconds kMs = 1'000'000'000'000;  // femtoseconds

PlacementOption on_one_rank(Femtoseconds lookup, Femtoseconds exchange, std::int64_t bytes = 0) {
  PlacementOption o;
  o.load[kLookup] = lookup;
  o.load[kExchange] = exchange;
  o.bytes[0] = bytes;
  return o;
}

}  // namespace

TEST_CASE("the objective is the sum over phases of the slowest rank of each",
          "[planner][placement]") {
  PlacementProblem p;
  p.ranks = 2;
  p.fixed = {5 * kMs};
  p.constant = kMs;
  PlacementOption a = on_one_rank(3 * kMs, kMs);
  a.routes = 1;
  PlacementOption everywhere;
  everywhere.group = 2;
  everywhere.load[kLookup] = kMs;
  everywhere.load[kUpdate] = 2 * kMs;
  p.tables = {{"a", {a}}, {"b", {on_one_rank(kMs, 4 * kMs)}}, {"c", {everywhere}}};
  // a on rank 0, b on rank 1: lookup 3 + 1 on rank 0, exchange 4 on rank 1, update 2 on both;
  // constant 1 and the route's 5. No rank is busy for more than 8 of these 10.
  const Placement placement{{0, {0}}, {0, {1}}, {0, {}}};
  CHECK(objective_of(p, placement) == (4 + 4 + 2 + 6) * kMs);
  // Both on rank 0: 4 + 1, 5 and 2.
  CHECK(objective_of(p, {{0, {0}}, {0, {0}}, {0, {}}}) == (5 + 5 + 2 + 6) * kMs);
  CHECK(p.phases() == std::vector<std::size_t>{kLookup, kExchange, kUpdate});
}

TEST_CASE("incremental evaluation equals the recount after any sequence of changes",
          "[planner][placement][property]") {
  std::mt19937 rng(7);
  for (const std::int32_t ranks : {4, 6, 32}) {
    const PlacementProblem p = random_problem(rng, ranks, 12, true);
    PlacementState state(p);
    for (std::size_t t = 0; t < p.tables.size(); ++t) {
      state.add(t, {0, {static_cast<std::int32_t>(t) % ranks}});
    }
    for (int step = 0; step < 300; ++step) {
      const std::size_t t = rng() % p.tables.size();
      state.remove(t);
      const auto o = static_cast<std::int32_t>(rng() % p.tables[t].options.size());
      const PlacementOption& option = p.tables[t].options[static_cast<std::size_t>(o)];
      const auto groups = state.least_loaded(option);
      const Femtoseconds objective = state.with(option, groups);
      state.add(t, {o, groups});
      REQUIRE(state.objective() == objective);
      REQUIRE(state.objective() == objective_of(p, state.placement()));
      REQUIRE(state.fits() == fits(p, state.placement()));
    }
  }
}

TEST_CASE("the search finds the optimum of every problem small enough to enumerate",
          "[planner][search][oracle]") {
  const auto hold = [](const PlacementProblem& p) {
    const Femtoseconds optimum = brute_force(p);
    const SearchResult found = search(p, {.good_enough = 0});
    if (optimum < 0) {
      CHECK(found.best.empty());
      CHECK(found.shortage.has_value());
      return 0;
    }
    REQUIRE_FALSE(found.best.empty());
    CHECK(found.best.front().first == optimum);
    CHECK(found.bound.value <= optimum);
    CHECK(objective_of(p, found.best.front().second) == found.best.front().first);
    CHECK(fits(p, found.best.front().second));
    return 1;
  };
  std::mt19937 rng(11);
  int feasible = 0;
  for (int i = 0; i < 60; ++i) {
    const std::int32_t ranks = i % 3 == 0 ? 4 : i % 3 == 1 ? 2 : 3;
    CAPTURE(i, ranks);
    feasible += hold(random_problem(rng, ranks, ranks == 4 ? 3 : 4, i % 2 == 0));
  }
  CHECK(feasible >= 40);
  // More tables, a quarter of them alike: bounds by mean loads are weakest there.
  std::mt19937 more(23);
  feasible = 0;
  for (int i = 0; i < 12; ++i) {
    const std::int32_t ranks = i % 2 == 0 ? 4 : 2;
    const std::size_t tables = ranks == 4 ? 4 : static_cast<std::size_t>(5 + i % 3 / 2);
    PlacementProblem p = random_problem(more, ranks, tables, i % 3 == 0, ranks == 2);
    if (i % 4 == 3) {
      std::fill(p.tables.begin(), p.tables.end(), p.tables.front());
    }
    CAPTURE(i, ranks, tables);
    feasible += hold(p);
  }
  CHECK(feasible >= 6);
}

TEST_CASE("the bound is tight where loads divide evenly", "[planner][bound]") {
  // 8 tables of 1 ms on 4 ranks: two each; mean = 8 / 4 = 2 ms = the optimum.
  PlacementProblem p;
  p.ranks = 4;
  for (int t = 0; t < 8; ++t) {
    p.tables.push_back({"t" + std::to_string(t), {on_one_rank(kMs, 0)}});
  }
  const SearchResult found = search(p, {.good_enough = 0});
  CHECK(found.best.front().first == 2 * kMs);
  CHECK(found.gap() < 1e-6);
  // One table of 5 ms decides: no rank can be done before.
  p.tables.push_back({"large", {on_one_rank(5 * kMs, 0)}});
  CHECK(static_cast<double>(lower_bound(p).value) == Approx(5.0 * kMs).epsilon(1e-5));
  CHECK(lower_bound(p).reason == "largest piece");
}

TEST_CASE("the bound of phases sees that each waits for its own slowest rank", "[planner][bound]") {
  // Two ranks; a looks up for 4 ms, b exchanges for 4 ms. Each rank may have one of them, and 4 ms
  // of all phases, but the lookup ends after 4 ms and the exchange 4 ms later.
  PlacementProblem p;
  p.ranks = 2;
  p.tables = {{"a", {on_one_rank(4 * kMs, 0)}}, {"b", {on_one_rank(0, 4 * kMs)}}};
  CHECK(static_cast<double>(lower_bound(p).value) == Approx(4.0 * kMs).epsilon(1e-6));
  const Femtoseconds bound = internal::PhaseBound(p, 1).raise(9 * kMs, 9 * kMs, 100);
  CHECK(static_cast<double>(bound) == Approx(8.0 * kMs).epsilon(1e-6));
  // Split over both ranks at 3 ms each, the lookup takes 3 ms; what lies on all ranks adds to it.
  PlacementOption rows;
  rows.group = 2;
  rows.load[kLookup] = 3 * kMs;
  p.tables[0].options.push_back(rows);
  p.tables.push_back({"c", {rows}});
  const Femtoseconds split = internal::PhaseBound(p, 1).raise(12 * kMs, 12 * kMs, 100);
  CHECK(static_cast<double>(split) == Approx(10.0 * kMs).epsilon(1e-6));
}

TEST_CASE("the bound of phases is never above the optimum", "[planner][bound][oracle][property]") {
  std::mt19937 rng(47);
  int sharper = 0;
  int checked = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int32_t ranks = i % 4 == 0 ? 4 : i % 4 == 1 ? 2 : 3;
    const PlacementProblem p = random_problem(rng, ranks, ranks == 4 ? 3 : 4, i % 3 == 0);
    const Femtoseconds optimum = brute_force(p);
    if (optimum < 0) {
      continue;
    }
    const Femtoseconds plain = lower_bound(p).value;
    for (const std::uint64_t nodes : {0, 5, 1000}) {
      for (const double above : {1.0, 1.3}) {
        const auto in_hand = static_cast<Femtoseconds>(static_cast<double>(optimum) * above);
        internal::PhaseBound phases(p, 4);
        const Femtoseconds found = phases.raise(in_hand, in_hand, nodes);
        CAPTURE(i, ranks, nodes, above, plain, optimum);
        REQUIRE(found <= optimum);
        ++checked;
        sharper += found > plain + plain / 100 ? 1 : 0;
        for (const auto& start : phases.starts()) {
          REQUIRE(start.size() == p.tables.size());
        }
      }
    }
  }
  CHECK(sharper > checked / 10);
}

TEST_CASE("annealing finds the optimum of small problems and keeps every piece and capacity",
          "[planner][search][oracle]") {
  std::mt19937 rng(53);
  int optimal = 0;
  int feasible = 0;
  for (int i = 0; i < 40; ++i) {
    const std::int32_t ranks = i % 2 == 0 ? 4 : 3;
    PlacementProblem p = random_problem(rng, ranks, ranks == 4 ? 3 : 4, i % 3 == 0, false);
    if (i % 5 == 0) {  // two ranks draw on one unit
      p.tiers.front().shared_by = 2;
      p.tiers.front().capacity.resize(2);
    }
    const Femtoseconds optimum = brute_force(p);
    const SearchResult start = search(p, {.effort = SearchEffort::kQuick, .keep = 8});
    if (optimum < 0 || start.best.empty()) {
      continue;
    }
    ++feasible;
    const internal::Annealing run{.moves = 20'000, .hot = 0.1, .cold = 1e-3};
    const Placement found = run.run(p, start.best.back().second, 7);
    CAPTURE(i, ranks);
    REQUIRE(fits(p, found));
    REQUIRE(objective_of(p, found) >= optimum);
    REQUIRE(objective_of(p, found) <= start.best.back().first);
    check_placement(p, found);
    optimal += objective_of(p, found) == optimum ? 1 : 0;
  }
  CHECK(feasible >= 25);
  CHECK(optimal == feasible);
}

TEST_CASE("annealing finds what descents do not: one piece less on every rank",
          "[planner][search]") {
  // 9 tables of 2 ms that may lie in halves of 1 ms, on 4 ranks: 4.5 ms is the mean, 5 the least;
  // one of them may lie on all ranks for 0.9 ms: then 4 + 0.9 in two phases.
  PlacementProblem p;
  p.ranks = 4;
  for (int t = 0; t < 18; ++t) {
    PlacementOption halves = on_one_rank(kMs, 0);
    halves.pieces = 2;
    PlacementOption all;
    all.group = 4;
    all.load[kUpdate] = t < 2 ? 2 * kMs / 5 : 3 * kMs;
    p.tables.push_back({"t" + std::to_string(t), {on_one_rank(2 * kMs, 0), halves, all}});
  }
  // 18 tables: 36 ms on 4 ranks is 9; without the two cheap ones 8 + 0.8.
  const SearchResult found = search(p, {.good_enough = 0});
  CHECK(found.best.front().first == 8 * kMs + 4 * kMs / 5);
}

TEST_CASE("annealing changes like tables together where one alone gains nothing",
          "[planner][search]") {
  // 4 tables on 8 ranks: whole, 4 ms of lookups and 1 of exchange on 4 of them; in two parts, which
  // exchange as much each, 2 + 1 ms on all 8. Before the last is cut the lookup still takes 4 ms,
  // and each cut costs every rank 0.1 ms: 5, 5.1, 5.2, 5.3, then 3.4 ms.
  PlacementProblem p;
  p.ranks = 8;
  PlacementOption halves = on_one_rank(2 * kMs, kMs);
  halves.pieces = 2;
  halves.everywhere[kUpdate] = kMs / 10;
  Placement whole;
  for (int t = 0; t < 4; ++t) {
    p.tables.push_back({"t" + std::to_string(t), {on_one_rank(4 * kMs, kMs), halves}});
    whole.push_back({0, {t}});
  }
  REQUIRE(objective_of(p, whole) == 5 * kMs);
  // At 0.1 % of the objective three steps of 0.1 ms up, 20 times that each, are never kept.
  const Placement found =
      internal::Annealing{.moves = 20'000, .hot = 1e-3, .cold = 5e-4}.run(p, whole, 3);
  check_placement(p, found);
  CHECK(objective_of(p, found) == 3 * kMs + 4 * kMs / 10);
}

TEST_CASE("scarce memory raises the bound and is never exceeded", "[planner][bound][memory]") {
  // Fast needs 10 bytes on each rank, slow 1: of ten tables only one in ten can be fast when a rank
  // has 19 bytes: 9 * 1 + 10. Objective: 9 slow of 2 ms + 1 fast of 1 ms.
  PlacementProblem p;
  p.ranks = 2;
  for (int t = 0; t < 10; ++t) {
    PlacementOption fast;
    fast.group = 2;
    fast.load[kLookup] = kMs;
    fast.bytes[0] = 10;
    PlacementOption slow = fast;
    slow.load[kLookup] = 2 * kMs;
    slow.bytes[0] = 1;
    p.tables.push_back({"t" + std::to_string(t), {fast, slow}});
  }
  p.tiers = {{"hbm", 1, {19, 19}}};
  const SearchResult found = search(p, {.good_enough = 0});
  REQUIRE_FALSE(found.best.empty());
  CHECK(found.best.front().first == 19 * kMs);
  CHECK(found.bound.without_memory <= 10 * kMs);
  CHECK(static_cast<double>(found.bound.value) == Approx(19.0 * kMs).epsilon(1e-4));
  CHECK(lower_bound(p).reason == "memory");
}

TEST_CASE("what cannot fit is said in bytes", "[planner][search][memory]") {
  PlacementProblem p;
  p.ranks = 2;
  p.tables = {{"small", {on_one_rank(kMs, 0, 4)}}, {"big", {on_one_rank(kMs, 0, 130)}}};
  p.tiers = {{"hbm", 1, {100, 100}}};
  SearchResult found = search(p);
  CHECK(found.best.empty());
  REQUIRE(found.shortage);
  CHECK(found.shortage->table == "big");
  CHECK(found.shortage->tier == "hbm");
  CHECK(found.shortage->missing() == 30);
  // Each fits, together they do not: 3 * 70 on 2 * 100.
  p.tables = {{"a", {on_one_rank(kMs, 0, 70)}},
              {"b", {on_one_rank(kMs, 0, 70)}},
              {"c", {on_one_rank(kMs, 0, 70)}}};
  found = search(p);
  CHECK(found.best.empty());
  REQUIRE(found.shortage);
  CHECK(found.shortage->missing() == 10);
}

TEST_CASE("the same seed gives the same plan", "[planner][search][property]") {
  std::mt19937 rng(3);
  const PlacementProblem p = random_problem(rng, 8, 40, true);
  const SearchResult a = search(p, {.seed = 5});
  const SearchResult b = search(p, {.seed = 5});
  REQUIRE(a.best.size() == b.best.size());
  CHECK(a.evaluations == b.evaluations);
  for (std::size_t i = 0; i < a.best.size(); ++i) {
    CHECK(a.best[i].first == b.best[i].first);
    for (std::size_t t = 0; t < p.tables.size(); ++t) {
      CHECK(a.best[i].second[t].groups == b.best[i].second[t].groups);
    }
  }
}
