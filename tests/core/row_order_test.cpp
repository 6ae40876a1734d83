#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "core/access/row_order.h"
#include "core/error.h"

using namespace stepcast;

TEST_CASE("an order of rows is a permutation and knows where each row stands", "[core][order]") {
  const std::int64_t rows = GENERATE(1, 2, 7, 64, 1000);
  const auto check = [&](const RowOrder& order) {
    std::vector<bool> seen(static_cast<std::size_t>(rows), false);
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t row = order.row_at(k);
      REQUIRE(row >= 0);
      REQUIRE(row < rows);
      CHECK_FALSE(seen[static_cast<std::size_t>(row)]);
      seen[static_cast<std::size_t>(row)] = true;
      CHECK(order.position_of(row) == k);
    }
  };
  check(RowOrder::seeded(rows, 9));
  check(RowOrder::listed(rows, {}));
  std::vector<std::int64_t> ids;
  for (std::int64_t id = rows - 1; id >= 0; id -= 3) {
    ids.push_back(id);
  }
  check(RowOrder::listed(rows, ids));
}

TEST_CASE("the seed of a zipf law names its order; recorded ids their hottest", "[core][order]") {
  const Access zipf = Access::zipf(1000, 1.1, 5);
  const RowOrder seeded = *RowOrder::of(zipf, 10);
  for (std::int64_t k = 0; k < 1000; ++k) {
    CHECK(seeded.row_at(k) == zipf.row_of_rank(k));
  }
  CHECK(seeded.follows(zipf));
  CHECK(seeded.follows(Access::zipf(1000, 0.6, 5)));  // flatter, but in the same order
  CHECK_FALSE(seeded.follows(Access::zipf(1000, 1.1, 6)));
  // 7 twice, 3 and 5 once: of these the two hottest, then the rest by id.
  const RowOrder listed = *RowOrder::of(Access::indices(10, {5, 7, 3, 7}), 2);
  CHECK(listed.ids() == std::vector<std::int64_t>{7, 3});
  CHECK(listed.row_at(2) == 0);
  CHECK(listed.row_at(9) == 9);
  CHECK_FALSE(RowOrder::of(Access::histogram(10, {{0, 1, 4, 4}}, 4), 2));
  CHECK_THROWS_WITH(RowOrder::listed(10, {3, 10}), Catch::Contains("id 10"));
  CHECK_THROWS_WITH(RowOrder::listed(10, {3, 4, 3}), Catch::Contains("list each row once"));
}

TEST_CASE("lookups in the order of their own law are the law's ranges", "[core][order]") {
  const Access law = Access::zipf(200'000, 1.1, 5);
  const LookupsInOrder lookups(law, RowOrder::seeded(200'000, 5), 100'000);
  for (const std::array<std::int64_t, 2> range :
       {std::array<std::int64_t, 2>{0, 100}, {100, 5000}, {5000, 200'000}}) {
    CAPTURE(range[0], range[1]);
    const auto [part, mass] = lookups.range(range[0], range[1]);
    const auto [exact, exact_mass] = law.ranks(range[0], range[1]);
    // Beyond the rows that are followed nothing says where a row stands; 100,000 are.
    CHECK(mass == Approx(exact_mass).epsilon(0.01));
    CHECK(part.rows() == exact.rows());
    CHECK(part.unique(10'000).value == Approx(exact.unique(10'000).value).epsilon(0.02));
  }
}

TEST_CASE("lookups in the order of another law fall as a count of every row says",
          "[core][order][oracle]") {
  // Half of the hot rows stayed hot: the first 50 listed are the law's hottest, in reverse.
  const Access now = Access::zipf(5000, 1.05, 3);
  std::vector<std::int64_t> ids;
  for (std::int64_t k = 50; k-- > 0;) {
    ids.push_back(now.row_of_rank(k));
  }
  for (std::int64_t k = 4000; k < 4050; ++k) {
    ids.push_back(now.row_of_rank(k));
  }
  for (const RowOrder& order : {RowOrder::listed(5000, ids), RowOrder::seeded(5000, 4)}) {
    const LookupsInOrder lookups(now, order, 100);
    double sum = 0;
    for (const std::array<std::int64_t, 2> range :
         {std::array<std::int64_t, 2>{0, 100}, {100, 1000}, {1000, 5000}}) {
      CAPTURE(range[0], range[1]);
      double mass = 0;
      double distinct = 0;  // among 2,000 lookups of the range
      for (std::int64_t k = 0; k < 5000; ++k) {
        const std::int64_t position = order.position_of(now.row_of_rank(k));
        mass += position >= range[0] && position < range[1]
                    ? now.probability(static_cast<double>(k))
                    : 0;
      }
      for (std::int64_t k = 0; k < 5000; ++k) {
        const std::int64_t position = order.position_of(now.row_of_rank(k));
        if (position >= range[0] && position < range[1]) {
          const double p = now.probability(static_cast<double>(k)) / mass;
          distinct += 1 - std::pow(1 - p, 2000);
        }
      }
      const auto [part, share] = lookups.range(range[0], range[1]);
      CHECK(share == Approx(mass).epsilon(5e-4));  // rows of a bin of the law are alike
      CHECK(part.unique(2000).value == Approx(distinct).epsilon(1e-3));
      sum += share;
    }
    CHECK(sum == Approx(1).epsilon(1e-9));
  }
}

TEST_CASE("rows beyond those that are followed count as dealt out at random", "[core][order]") {
  // 2^17 rows, all in another order: of 2^16 followed rows and of the others a range of a tenth of
  // the places has a tenth, give or take a few per cent of the lookups.
  const Access now = Access::zipf(1 << 17, 0.5, 1);
  const LookupsInOrder lookups(now, RowOrder::seeded(1 << 17, 2), 0);
  CHECK(lookups.followed() == 1 << 16);
  const std::int64_t tenth = (1 << 17) / 10;
  const auto [part, mass] = lookups.range(3 * tenth, 4 * tenth);
  CHECK(mass == Approx(0.1).epsilon(0.03));
  CHECK(part.rows() == tenth);
}
