#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <list>
#include <random>

#include "core/access/stack_distance.h"
#include "core/error.h"

using namespace stepcast;

namespace {

/// Share of hits of an LRU cache, by keeping one.
double simulated(const std::vector<std::int64_t>& lookups, std::size_t capacity) {
  std::list<std::int64_t> cache;
  double hits = 0;
  for (const std::int64_t row : lookups) {
    const auto at = std::find(cache.begin(), cache.end(), row);
    if (at != cache.end()) {
      ++hits;
      cache.erase(at);
    } else if (cache.size() == capacity) {
      cache.pop_back();
    }
    cache.push_front(row);
  }
  return hits / static_cast<double>(lookups.size());
}

}  // namespace

TEST_CASE("stack distances give the hit rate of every LRU cache", "[core][reuse]") {
  // 1 2 1 3 2 1: distances -, -, 1, -, 2, 2. A cache of one row never hits, of two once, of three
  // thrice in six.
  const std::vector<std::int64_t> few{1, 2, 1, 3, 2, 1};
  const StackDistances d(few);
  CHECK(d.distinct() == 3);
  CHECK(d.hit_rate(0) == 0);
  CHECK(d.hit_rate(1) == 0);
  CHECK(d.hit_rate(2) == Approx(1.0 / 6));
  CHECK(d.hit_rate(3) == Approx(3.0 / 6));
  CHECK(d.hit_rate(1e9) == Approx(3.0 / 6));
}

TEST_CASE("stack distances agree with a cache that is really kept", "[core][reuse]") {
  std::mt19937_64 random(7);
  std::vector<std::int64_t> lookups;
  for (int i = 0; i < 3000; ++i) {
    // Skewed, and drifting: what an independent law cannot say.
    lookups.push_back(static_cast<std::int64_t>(random() % (1 + random() % 200)) + i / 50);
  }
  const StackDistances d(lookups);
  for (const std::size_t capacity : {1, 3, 10, 40, 100, 180, 400}) {
    CAPTURE(capacity);
    CHECK(d.hit_rate(static_cast<double>(capacity)) ==
          Approx(simulated(lookups, capacity)).margin(1e-12));
  }
}

TEST_CASE("a sample of the rows estimates the curve within two points", "[core][reuse]") {
  // The miniature of Waldspurger et al.: 10^6 lookups of a Zipf law, 1 % of the rows followed.
  // Which rows are followed is luck; so five laws with shuffles of their own, and the median.
  std::vector<double> errors;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Access law = Access::zipf(1'000'000, 0.9, seed);
    AccessSampler sampler(law, 5);
    std::vector<std::int64_t> lookups(1'000'000);
    sampler.fill_rows(lookups);
    const StackDistances all(lookups);
    const StackDistances some(lookups, 0.01);
    CHECK(some.followed() < all.followed() / 20);
    CHECK(some.distinct() == Approx(all.distinct()).epsilon(0.08));
    // The source's measure: the mean error over cache sizes, here 1 % to 100 % of the rows.
    double sum = 0;
    for (int i = 1; i <= 100; ++i) {
      const double capacity = 0.01 * i * all.distinct();
      sum += std::abs(some.hit_rate(capacity) - all.hit_rate(capacity));
    }
    errors.push_back(sum / 100);
    // Only first lookups separate a recording of independent lookups from Che's warm cache.
    const double warm = law.hit_rate(1e5, CachePolicy::kLru).value;
    CHECK(all.hit_rate(1e5) < warm);
    CHECK(all.hit_rate(1e5) > warm - all.distinct() / 1e6);
  }
  std::sort(errors.begin(), errors.end());
  CHECK(errors[2] < 0.02);
  CHECK(errors[4] < 0.04);
}

TEST_CASE("reuse bins count rows and lookups, each once", "[core][reuse]") {
  const std::vector<std::int64_t> lookups{7, 7, 7, 9, 1, 1, 4, 4, 4, 4, 4};
  const std::vector<ReuseBin> bins = reuse_bins(lookups);  // counts 3, 1, 2, 5
  REQUIRE(bins.size() == 4);
  CHECK(bins[0].unique_rows == 1);  // (0, 1]: row 9
  CHECK(bins[1].unique_rows == 1);  // (1, 2]: row 1
  CHECK(bins[2].accesses == 3);     // (2, 4]: row 7
  CHECK(bins[3].accesses == 5);     // (4, 8]: row 4
  CHECK(bins[3].reuse_low == 4);
  CHECK(bins[3].reuse_high == 8);
}

TEST_CASE("bad sample rates are refused", "[core][reuse]") {
  const std::vector<std::int64_t> one{1};
  CHECK_THROWS_AS(StackDistances(one, 0), InputError);
  CHECK_THROWS_AS(StackDistances(one, 1.5), InputError);
  CHECK_THROWS_AS(StackDistances(one, 1e-9), InputError);
}
