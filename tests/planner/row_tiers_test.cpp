#include <catch2/catch.hpp>
#include <cmath>

#include "planner/embedding/row_tiers.h"

using namespace stepcast;
using namespace stepcast::planner;

namespace {

/// Inter-node and intra-node bytes of one row per step, forward and backward, as lines in the
/// accesses (FlexShard, arXiv 2301.02959): v bytes a row, N nodes of L, sync every k steps.
struct ByteLevels {
  double nodes, local, k, v;
  [[nodiscard]] std::vector<RowLevel> inter_node() const {
    return {{0, 2 * (nodes - 1) * v / k, 0}, {2 * (nodes - 1) / nodes * v, 0, 0}};
  }
  [[nodiscard]] std::vector<RowLevel> intra_node() const {
    return {{0, 2 * (local - 1) * nodes * v / k, 0}, {2 * (local - 1) / local * v, 0, 0}};
  }
};

}  // namespace

TEST_CASE("thresholds of bytes alone: nodes for one copy a node, devices for one everywhere",
          "[planner][row_tiers]") {
  for (const double nodes : {2.0, 8.0, 64.0}) {
    for (const double k : {1.0, 4.0}) {
      const ByteLevels bytes{nodes, 8, k, 256};
      CHECK(level_thresholds(bytes.inter_node(), {}, 0)[0] == Approx(nodes / k));
      CHECK(level_thresholds(bytes.intra_node(), {}, 0)[0] == Approx(8 * nodes / k));
    }
  }
}

TEST_CASE("deduplicated ids have thresholds of their own", "[planner][row_tiers]") {
  // N beats G iff c > W ln(kL / (kL - 1)): 1.068 N at k = 1, 0.254 N at k = 4 (L = 8).
  const double nodes = 8;
  const double devices = 64;
  for (const auto& [k, expected] : {std::pair{1.0, 1.068}, std::pair{4.0, 0.254}}) {
    const ByteLevels bytes{nodes, 8, k, 256};
    const double above = level_thresholds(bytes.inter_node(), {devices}, 0)[0];
    CHECK(above == Approx(devices * std::log(k * 8 / (k * 8 - 1))));
    CHECK(above / nodes == Approx(expected).epsilon(2e-3));
  }
  // R beats N never at k = 1, and from 0.288 W at k = 4.
  CHECK(std::isinf(level_thresholds(ByteLevels{nodes, 8, 1, 256}.intra_node(), {devices}, 0)[0]));
  CHECK(level_thresholds(ByteLevels{nodes, 8, 4, 256}.intra_node(), {devices}, 0)[0] / devices ==
        Approx(0.288).epsilon(2e-3));
}

TEST_CASE("a level that is nowhere cheapest gets no rows", "[planner][row_tiers]") {
  // Lines 10; u + 9; 2 u: the middle one is 19 / 2 at their crossing u = 5 where both are 10.
  const std::vector<RowLevel> levels{{0, 10, 0}, {1, 9, 0}, {2, 0, 0}};
  const auto above = level_thresholds(levels, {}, 0);
  CHECK(above[0] == Approx(5));
  CHECK(std::isinf(above[1]));
  CHECK(above[2] < 0);
  const RowTierCut cut = cut_rows(Access::zipf(1000, 1.1), 1e4, above);
  CHECK(cut.ends[0] == cut.ends[1]);
  CHECK(cut.ends[2] == 1000);
  CHECK(cut.accesses[0] + cut.accesses[1] + cut.accesses[2] == Approx(1));
}

TEST_CASE("the cut is the row by row optimum, with and without a price on memory",
          "[planner][row_tiers][oracle]") {
  const Access law = Access::zipf(3000, 1.05);
  const double lookups = 20000;
  const std::vector<RowLevel> levels{{0, 40, 12}, {1.5, 7, 3}, {4, 0, 1}};
  for (const double dedup : {0.0, 16.0}) {
    const AccessCounting count{dedup};
    for (const double lambda : {0.0, 0.5, 3.0}) {
      const RowTierCut cut = cut_rows(law, lookups, level_thresholds(levels, count, lambda));
      double brute = 0;
      double own = 0;
      for (std::int64_t r = 0; r < law.rows(); ++r) {
        const double u = count.u(lookups * law.probability(static_cast<double>(r)));
        double least = INFINITY;
        for (const RowLevel& l : levels) {
          least = std::min(least, l.per_access * u + l.per_row + lambda * l.memory);
        }
        brute += least;
        const std::size_t mine = r < cut.ends[0] ? 0 : r < cut.ends[1] ? 1 : 2;
        own += levels[mine].per_access * u + levels[mine].per_row + lambda * levels[mine].memory;
      }
      CAPTURE(dedup, lambda);
      CHECK(own == Approx(brute).epsilon(1e-9));
    }
  }
}

TEST_CASE("buffers of exchanged accesses make copies of hot rows cost less memory than none",
          "[planner][row_tiers]") {
  // A copy everywhere takes 10 bytes more a row and saves 2 bytes an access: above 5 accesses it is
  // the smaller one, whatever it does to time.
  const std::vector<RowLevel> levels{{3, 0, 12, 0}, {3, 0, 2, 2}};
  CHECK(level_thresholds(levels, {}, 1)[0] == Approx(5));
  CHECK(std::isinf(level_thresholds(levels, {}, 0)[0]));
  const Access law = Access::zipf(1000, 1.1);
  const double lookups = 1e4;
  const auto memory = [&](double threshold) {
    const RowTierCut cut = cut_rows(law, lookups, std::vector<double>{threshold, -1});
    return cost_of(law, lookups, cut, levels, {}).memory;
  };
  CHECK(memory(5) < memory(4));
  CHECK(memory(5) < memory(6.5));
  // None copied: 2 bytes a row and 2 an access.
  CHECK(memory(1e9) == Approx(2 * 1000 + 2 * lookups));
}
