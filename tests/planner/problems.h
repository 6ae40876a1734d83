#pragma once
#include <algorithm>
#include <random>
#include <set>

#include "planner/embedding/placement.h"

namespace stepcast::planner::testing {

/// A random placement problem small enough for brute force: options on one rank, on several pieces,
/// on groups of two and on all ranks; memory for most, not for all.
inline PlacementProblem random_problem(std::mt19937& rng, std::int32_t ranks, std::size_t tables,
                                       bool tight, bool blocks = true) {
  const auto draw = [&rng](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
  };
  PlacementProblem p;
  p.ranks = ranks;
  p.fixed = {draw(0, 40'000'000'000), draw(0, 40'000'000'000), draw(0, 40'000'000'000)};
  p.constant = draw(0, 1'000'000'000);
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < tables; ++t) {
    PlacementTable& table = p.tables.emplace_back();
    table.name = "t" + std::to_string(t);
    const Femtoseconds look = draw(10, 1000) * 1'000'000'000;
    const Femtoseconds send = draw(10, 400) * 1'000'000'000;
    const std::int64_t size = draw(10, 100);
    bytes += size;
    const auto option = [&](std::string label, std::int32_t pieces, std::int32_t group,
                            double share, std::uint32_t routes) {
      PlacementOption o;
      o.label = std::move(label);
      o.pieces = pieces;
      o.group = group;
      o.load = {static_cast<Femtoseconds>(static_cast<double>(look) * share),
                static_cast<Femtoseconds>(static_cast<double>(send) * share),
                static_cast<Femtoseconds>(static_cast<double>(look) * share * 2)};
      o.bytes[0] = std::max<std::int64_t>(1, size / (pieces * group));
      o.routes = routes;
      table.options.push_back(o);
    };
    option("whole", 1, 1, 1, 1);
    if (ranks >= 2) {
      option("columns x2", 2, 1, 0.55, 1);
    }
    // Blocks of rows, one of them with the hot ones.
    if (ranks >= 2 && blocks && tables <= 12 && draw(0, 2) == 0) {
      option("blocks x2", 2, 1, 0.5, 1);
      table.options.back().skew = {{static_cast<std::int32_t>(draw(0, 1)), 1}};
      table.options.back().skewed = {look / 8, 0, look / 4};
    }
    if (ranks >= 4) {
      option("pair", 1, 2, 0.6, 2);
    }
    option("rows", 1, ranks, 1.3 / ranks, 4);
    if (draw(0, 1) == 0) {  // the member with the hot rows
      table.options.back().skew = {{static_cast<std::int32_t>(draw(0, ranks - 1)), 1}};
      table.options.back().skewed = {look / 10, 0, look / 5};
    }
    option("copies", 1, ranks, 0.9, 0);
    table.options.back().bytes[0] = size;
  }
  const std::int64_t capacity = tight ? bytes / ranks + 40 : 100'000;
  p.tiers = {{"hbm", 1, std::vector<std::int64_t>(static_cast<std::size_t>(ranks), capacity)}};
  return p;
}

/// The optimum by trying every placement; -1 when none fits.
inline Femtoseconds brute_force(const PlacementProblem& p) {
  Placement placement(p.tables.size());
  Femtoseconds best = -1;
  const auto groups_of = [&](const PlacementOption& o) {
    std::vector<std::vector<std::int32_t>> all;
    if (o.group == p.ranks) {
      return std::vector<std::vector<std::int32_t>>{{}};
    }
    const std::int32_t n = p.ranks / o.group;
    for (std::int32_t mask = 0; mask < 1 << n; ++mask) {
      std::vector<std::int32_t> chosen;
      for (std::int32_t g = 0; g < n; ++g) {
        if ((mask >> g & 1) != 0) {
          chosen.push_back(g);
        }
      }
      if (static_cast<std::int32_t>(chosen.size()) == o.pieces) {
        do {
          all.push_back(chosen);
        } while (o.uneven_pieces() && std::next_permutation(chosen.begin(), chosen.end()));
      }
    }
    return all;
  };
  const auto walk = [&](auto&& self, std::size_t t) -> void {
    if (t == p.tables.size()) {
      if (fits(p, placement)) {
        const Femtoseconds here = objective_of(p, placement);
        best = best < 0 ? here : std::min(best, here);
      }
      return;
    }
    for (std::size_t o = 0; o < p.tables[t].options.size(); ++o) {
      for (auto& groups : groups_of(p.tables[t].options[o])) {
        placement[t] = {static_cast<std::int32_t>(o), groups};
        self(self, t + 1);
      }
    }
  };
  walk(walk, 0);
  return best;
}

/// Every piece of the chosen options has a group of its own.
inline void check_placement(const PlacementProblem& p, const Placement& found) {
  REQUIRE(found.size() == p.tables.size());
  for (std::size_t t = 0; t < found.size(); ++t) {
    const PlacementOption& o = p.tables[t].options[static_cast<std::size_t>(found[t].option)];
    const std::set<std::int32_t> distinct(found[t].groups.begin(), found[t].groups.end());
    REQUIRE(distinct.size() == found[t].groups.size());
    REQUIRE(found[t].groups.size() ==
            (o.group == p.ranks ? 0 : static_cast<std::size_t>(o.pieces)));
  }
}

}  // namespace stepcast::planner::testing
