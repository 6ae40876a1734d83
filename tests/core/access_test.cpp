#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/access/access.h"
#include "core/error.h"

using namespace stepcast;

namespace {

std::vector<double> zipf_probabilities(std::int64_t rows, double exponent) {
  std::vector<double> p;
  double sum = 0;
  for (std::int64_t k = 1; k <= rows; ++k) {
    p.push_back(std::pow(static_cast<double>(k), -exponent));
    sum += p.back();
  }
  for (double& x : p) {
    x /= sum;
  }
  return p;
}

double brute_unique(const std::vector<double>& p, double n) {
  double sum = 0;
  for (const double x : p) {
    sum -= std::expm1(n * std::log1p(-x));
  }
  return sum;
}

double brute_seen_once(const std::vector<double>& p, double n) {
  double sum = 0;
  for (const double x : p) {
    sum += n * x * std::exp((n - 1) * std::log1p(-x));
  }
  return sum;
}

}  // namespace

TEST_CASE("fixtures of zipf tables with 10^6 rows", "[core][access]") {
  struct Row {
    double exponent;
    std::array<double, 3> pinned;  // cache of 1, 5, 10 % of the rows
    std::array<double, 3> lru;
    std::array<double, 3> touched;  // U(n) / rows at n = 10^5, 10^6, 10^7
  };
  const auto row =
      GENERATE(values<Row>({{0.8, {.362, .523, .609}, {.232, .391, .487}, {.0667, .3911, .9620}},
                            {1.0, {.680, .792, .840}, {.585, .719, .779}, {.0375, .2170, .7631}},
                            {1.2, {.910, .951, .965}, {.875, .931, .950}, {.0145, .0795, .3554}}}));
  const Access access = Access::zipf(1'000'000, row.exponent);
  const std::array<double, 3> capacity = {1e4, 5e4, 1e5};
  const std::array<double, 3> lookups = {1e5, 1e6, 1e7};
  CAPTURE(row.exponent);
  for (std::size_t i = 0; i < 3; ++i) {
    // Printed digits: within half of the last one.
    const double pinned = access.hit_rate(capacity[i], CachePolicy::kPinned).value;
    const double lru = access.hit_rate(capacity[i], CachePolicy::kLru).value;
    CHECK(std::abs(pinned - row.pinned[i]) <= 0.000501);
    CHECK(std::abs(lru - row.lru[i]) <= 0.000501);
    CHECK(std::abs(access.unique(lookups[i]).value / 1e6 - row.touched[i]) <= 0.0000501);
  }
}

TEST_CASE("deduplication factors", "[core][access]") {
  CHECK(dedup_factor(16.5, .8) == Approx(4.02).margin(0.005));
  CHECK(dedup_factor(1.15, .8) == Approx(1.12).margin(0.005));
  CHECK(dedup_factor(16.5, .9) == Approx(6.47).margin(0.005));
  CHECK(dedup_factor(16.5, 0) == 1);
  CHECK(dedup_factor(1, 1) == 1);
  CHECK_THROWS_AS(dedup_factor(0.5, .8), InputError);
  CHECK_THROWS_AS(dedup_factor(2, 1.5), InputError);
  CHECK_THROWS_AS(dedup_factor(2, std::nan("")), InputError);
}

TEST_CASE("distinct rows equal the exact sum", "[core][access][oracle]") {
  const auto rows = GENERATE(values<std::int64_t>({1, 2, 100, 2048, 2049, 50'000, 300'000}));
  const auto exponent = GENERATE(0.0, 0.5, 0.99, 1.0, 1.05, 1.5, 2.0);
  const Access access = Access::zipf(rows, exponent);
  const std::vector<double> p = zipf_probabilities(rows, exponent);
  CAPTURE(rows, exponent);
  // A small table is exact, a large one within 10^-4.
  const double tolerance = rows <= 2048 ? 1e-11 : 1e-4;
  for (const double n : {1.0, 2.0, 10.0, 1e3, 1e5, 1e7}) {
    CAPTURE(n);
    CHECK(access.unique(n).value == Approx(brute_unique(p, n)).epsilon(tolerance));
    CHECK_FALSE(access.unique(n).outside_sample);
  }
  if (rows > 1) {
    for (const double n : {1.0, 2.0, 1e3, 1e5}) {
      const double exact = brute_seen_once(p, n);
      // Few are left where nearly every row was seen often: compare with the rows, not the few.
      const double few = rows <= 2048 ? 0 : 1e-5 * std::min(n, static_cast<double>(rows));
      CHECK(access.seen_once(n).value == Approx(exact).epsilon(tolerance).margin(few));
    }
  }
  double mass = 0;
  for (std::int64_t k = 0; k < rows; ++k) {
    mass += p[static_cast<std::size_t>(k)];
    if (k < 40 || k % 997 == 0 || k == rows - 1) {
      REQUIRE(access.probability(static_cast<double>(k)) ==
              Approx(p[static_cast<std::size_t>(k)]).epsilon(1e-9));
      REQUIRE(access.cdf(static_cast<double>(k + 1)).value == Approx(mass).epsilon(1e-9));
    }
  }
}

TEST_CASE("a table of 10^9 rows follows its closed forms", "[core][access][oracle]") {
  // Uniform: R (1 - (1 - 1/R)^n).
  const double rows = 1e9;
  const Access flat = Access::zipf(1'000'000'000, 0);
  const Access uniform = Access::uniform(1'000'000'000);
  for (const double n : {1.0, 1e6, 1e9, 1e10}) {
    const double exact = -rows * std::expm1(n * std::log1p(-1 / rows));
    CHECK(flat.unique(n).value == Approx(exact).epsilon(1e-9));
    CHECK(uniform.unique(n).value == Approx(exact).epsilon(1e-9));
  }
  CHECK(flat.hit_rate(2.5e8, CachePolicy::kLru).value == Approx(0.25));
  // Exponent 1: H(k) = ln k + gamma + 1/(2k), so cdf(k) = H(k) / H(10^9).
  const Access zipf = Access::zipf(1'000'000'000, 1);
  const auto harmonic = [](double k) { return std::log(k) + 0.57721566490153286 + 0.5 / k; };
  for (const double k : {1e4, 123456.0, 1e6, 5e8}) {
    CHECK(zipf.cdf(k).value == Approx(harmonic(k) / harmonic(1e9)).epsilon(1e-8));
  }
  CHECK(zipf.probability(0) == Approx(1 / harmonic(1e9)).epsilon(1e-9));
}

TEST_CASE("Che's approximation solves its own equations", "[core][access][oracle]") {
  const std::vector<double> p = zipf_probabilities(1000, 0.9);
  const Access access = Access::zipf(1000, 0.9);
  for (const double t : {0.5, 10.0, 1000.0, 20000.0}) {  // choose t, then ask for its capacity
    double capacity = 0;
    double hit = 0;
    for (const double x : p) {
      capacity -= std::expm1(-x * t);
      hit -= x * std::expm1(-x * t);
    }
    CHECK(access.hit_rate(capacity, CachePolicy::kLru).value == Approx(hit).epsilon(1e-9));
  }
}

TEST_CASE("one hot row", "[core][access]") {
  const Access one = Access::zipf(1, 1.2);
  CHECK(one.unique(5).value == 1);
  CHECK(one.seen_once(1).value == 1);
  CHECK(one.seen_once(5).value == 0);
  CHECK(one.cdf(1).value == 1);
  CHECK(one.hit_rate(1, CachePolicy::kPinned).value == 1);
  CHECK(one.hit_rate(1, CachePolicy::kLru).value == 1);
  CHECK(one.row_of_rank(0) == 0);
  // A recording of one row of many: every cache holds it.
  const Access hot = Access::indices(1000, {7, 7, 7, 7});
  CHECK(hot.hit_rate(1, CachePolicy::kPinned).value == 1);
  CHECK(hot.hit_rate(1, CachePolicy::kLru).value == 1);
  CHECK(hot.unique(3).value == Approx(1));
  CHECK(hot.row_of_rank(0) == 7);
}

TEST_CASE("wrong arguments are named", "[core][access]") {
  const double nan = std::nan("");
  CHECK_THROWS_WITH(Access::zipf(0, 1), Catch::Contains("0 rows"));
  CHECK_THROWS_WITH(Access::uniform(-3), Catch::Contains("-3 rows"));
  CHECK_THROWS_AS(Access::uniform(std::numeric_limits<std::int64_t>::max()), InputError);
  CHECK_THROWS_WITH(Access::zipf(10, -0.1), Catch::Contains("exponent -0.1"));
  CHECK_THROWS_WITH(Access::zipf(10, 101), Catch::Contains("0..100"));
  CHECK_THROWS_WITH(Access::zipf(10, nan), Catch::Contains("exponent"));
  CHECK_THROWS_AS(Access::zipf(10, std::numeric_limits<double>::infinity()), InputError);
  CHECK_THROWS_WITH(Access::indices(10, {3, 10}), Catch::Contains("row id 10 at position 1"));
  CHECK_THROWS_AS(Access::indices(10, {-1}), InputError);
  CHECK_THROWS_AS(Access::indices(10, {}), InputError);
  CHECK_THROWS_WITH(Access::histogram(100, {{0, 1, 10, 10}}, 5), Catch::Contains("only 5 lookups"));
  CHECK_THROWS_WITH(Access::histogram(100, {{0, 1, 10, 10}}, 20),
                    Catch::Contains("must be in a bin"));
  CHECK_THROWS_WITH(Access::histogram(9, {{0, 1, 10, 10}}, 10), Catch::Contains("table of 9 rows"));
  CHECK_THROWS_AS(Access::histogram(100, {}, 10), InputError);
  CHECK_THROWS_AS(Access::histogram(100, {{1, 0, 10, 10}}, 10), InputError);
  CHECK_THROWS_AS(Access::histogram(100, {{0, 1, nan, 10}}, 10), InputError);
  CHECK_THROWS_AS(Access::histogram(100, {{0, 1, 10, 10}}, nan), InputError);
  const Access access = Access::zipf(10, 1);
  CHECK_THROWS_AS(access.unique(nan), InputError);
  CHECK_THROWS_AS(access.unique(-1), InputError);
  CHECK_THROWS_AS(access.unique(std::numeric_limits<double>::infinity()), InputError);
  CHECK_THROWS_AS(access.cdf(nan), InputError);
  CHECK_THROWS_AS(access.hit_rate(-1, CachePolicy::kLru), InputError);
  CHECK_THROWS_AS(access.probability(10), InputError);
  CHECK_THROWS_AS(access.row_of_rank(10), InputError);
  CHECK_THROWS_AS(access.row_of_rank(-1), InputError);
  CHECK_THROWS_AS(access.ranks(5, 5), InputError);
  CHECK_THROWS_AS(access.ranks(0, 11), InputError);
  CHECK_THROWS_AS(access.random_subset(0), InputError);
  CHECK_THROWS_AS(access.remapped(0, Access::Remap::kMod), InputError);
}
