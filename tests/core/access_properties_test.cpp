#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/access/access.h"

using namespace stepcast;

namespace {

/// One of each way to make a law.
std::vector<std::pair<std::string, Access>> laws() {
  const Access zipf = Access::zipf(200'000, 0.95, 3);
  std::vector<std::int64_t> recorded(30'000);
  AccessSampler(zipf, 1).fill_rows(recorded);
  const Access sample = Access::indices(200'000, recorded);
  const Access histogram = Access::histogram(
      5000, {{0, 1, 1000, 1000}, {1, 2, 500, 1000}, {2, 4, 300, 900}, {4, 100, 50, 2000}}, 4900);
  using Remap = Access::Remap;
  return {{"uniform", Access::uniform(12'345)},
          {"zipf", zipf},
          {"steep zipf", Access::zipf(1'000'000'000, 2.2)},
          {"small zipf", Access::zipf(50, 1)},
          {"sample", sample},
          {"histogram", histogram},
          {"head of zipf", zipf.ranks(0, 1000).first},
          {"tail of zipf", zipf.ranks(1000, 200'000).first},
          {"shard of zipf", zipf.random_subset(25'000)},
          {"shard of shard", zipf.random_subset(25'000).random_subset(1000)},
          {"ranks of shard", zipf.random_subset(25'000).ranks(5, 5000).first},
          {"hashed zipf", zipf.remapped(10'000, Remap::kMod)},
          {"hashed shard", zipf.random_subset(25'000).remapped(1000, Remap::kMod)},
          {"folded zipf", zipf.remapped(10'000, Remap::kFrequency)},
          {"zipf in more buckets", zipf.remapped(400'000, Remap::kMod)},
          {"ranks of sample", sample.ranks(10, 100'000).first},
          {"shard of sample", sample.random_subset(20'000)},
          {"hashed sample", sample.remapped(1000, Remap::kMod)},
          {"hashed histogram", histogram.remapped(500, Remap::kMod)},
          {"folded histogram", histogram.remapped(500, Remap::kFrequency)}};
}

double unique_of(const Access& access, double n) { return access.unique(n).value; }

}  // namespace

TEST_CASE("U is concave, rises, and stays below lookups and rows", "[core][access][property]") {
  for (const auto& [name, access] : laws()) {
    CAPTURE(name);
    const auto rows = static_cast<double>(access.rows());
    CHECK(unique_of(access, 0) == 0);
    if (name.find("shard") == std::string::npos) {
      CHECK(unique_of(access, 1) == Approx(1).epsilon(1e-6));
    }  // one lookup on average in a shard may be two in one and none in another
    double before = 0;
    double slope = 1 + 1e-9;
    double last_n = 0;
    for (double n = 0.25; n < 1e8; n *= 1.3) {
      const double now = unique_of(access, n);
      const double once = access.seen_once(n).value;
      CAPTURE(n);
      REQUIRE(now >= before * (1 - 1e-12));
      REQUIRE(now <= std::min(n, rows) * (1 + 1e-12));
      const double next_slope = (now - before) / (n - last_n);
      REQUIRE(next_slope <= slope * (1 + 1e-7) + 1e-12 * now / (n - last_n));
      REQUIRE(once >= 0);
      REQUIRE(once <= now * (1 + 1e-9));
      const AccessAnswer answer = access.unique(n);
      REQUIRE(answer.low <= answer.value);
      REQUIRE(answer.value <= answer.high);
      REQUIRE(answer.outside_sample ==
              (access.sample_lookups() > 0 && n > access.sample_lookups()));
      before = now;
      slope = next_slope;
      last_n = n;
    }
  }
}

TEST_CASE("hit rates rise from 0 to 1 with capacity, and pinning the hottest rows is best",
          "[core][access][property]") {
  for (const auto& [name, access] : laws()) {
    CAPTURE(name);
    const auto rows = static_cast<double>(access.rows());
    double pinned_before = 0;
    double lru_before = 0;
    CHECK(access.hit_rate(0, CachePolicy::kLru).value == 0);
    CHECK(access.hit_rate(0, CachePolicy::kPinned).value == 0);
    for (double capacity = 0.5; capacity < 2 * rows; capacity *= 1.4) {
      const double pinned = access.hit_rate(capacity, CachePolicy::kPinned).value;
      const double lru = access.hit_rate(capacity, CachePolicy::kLru).value;
      CAPTURE(capacity);
      REQUIRE(pinned >= pinned_before - 1e-12);
      REQUIRE(lru >= lru_before - 1e-9);
      REQUIRE(lru <= pinned + 1e-9);
      REQUIRE(pinned <= 1 + 1e-12);
      pinned_before = pinned;
      lru_before = lru;
    }
    CHECK(access.hit_rate(rows, CachePolicy::kPinned).value == Approx(1));
    CHECK(access.hit_rate(rows, CachePolicy::kLru).value == 1);
  }
}

TEST_CASE("probabilities fall with rank and add up to the cdf", "[core][access][property]") {
  for (const auto& [name, access] : laws()) {
    CAPTURE(name);
    double mass = 0;
    double before = 1;
    const std::int64_t last = std::min<std::int64_t>(access.rows(), 30'000);
    for (std::int64_t k = 0; k < last; ++k) {
      const double p = access.probability(static_cast<double>(k));
      REQUIRE(p >= 0);
      REQUIRE(p <= before * (1 + 1e-9) + 1e-15);
      mass += p;
      before = p;
    }
    CHECK(mass == Approx(access.cdf(static_cast<double>(last)).value).epsilon(1e-8));
    if (last == access.rows()) {
      CHECK(mass == Approx(1).epsilon(1e-8));  // after hashing too: sum q = 1
    }
  }
}

TEST_CASE("more skew never touches more rows", "[core][access][property]") {
  const auto rows = GENERATE(values<std::int64_t>({10, 1000, 100'000, 1'000'000'000}));
  for (const double exponent : {0.1, 0.4, 0.8, 1.1}) {
    for (const double n : {1.0, 10.0, 1e3, 1e6, 1e9}) {
      CAPTURE(rows, exponent, n);
      CHECK(unique_of(Access::zipf(rows, 2 * exponent), n) <=
            unique_of(Access::zipf(rows, exponent), n) * (1 + 1e-9));
      CHECK(unique_of(Access::zipf(rows, exponent), n) <=
            unique_of(Access::uniform(rows), n) * (1 + 1e-9));
    }
  }
}

TEST_CASE("parts of a law carry its mass and its rows", "[core][access][property]") {
  const Access access = Access::zipf(100'000, 1.05);
  double mass = 0;
  double touched = 0;
  constexpr double kLookups = 1e5;
  for (const auto& [first, last] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 10}, {10, 777}, {777, 30'000}, {30'000, 100'000}}) {
    const auto [part, share] = access.ranks(first, last);
    CHECK(part.rows() == last - first);
    mass += share;
    touched += part.unique(kLookups * share).value;
    for (const double k : {0.0, 3.0, 9.0}) {
      CHECK(part.probability(k) * share ==
            Approx(access.probability(static_cast<double>(first) + k)).epsilon(1e-9));
    }
    CHECK(share * part.cdf(5).value == Approx(access.cdf(static_cast<double>(first) + 5).value -
                                              access.cdf(static_cast<double>(first)).value)
                                           .epsilon(1e-8));
  }
  CHECK(mass == Approx(1).epsilon(1e-12));
  // The number of lookups in a part is random and here its mean: off by O(1 / lookups of the part).
  CHECK(touched == Approx(access.unique(kLookups).value).epsilon(1e-4));
  CHECK(access.ranks(0, 100'000).second == 1);

  // Eight shards of random rows add up to the table.
  const Access shard = access.random_subset(12'500);
  CHECK(8 * shard.unique(kLookups / 8).value == Approx(access.unique(kLookups).value));
  CHECK(8 * shard.seen_once(kLookups / 8).value == Approx(access.seen_once(kLookups).value));
  CHECK(shard.cdf(100).value == Approx(access.cdf(800).value).epsilon(1e-3));
  CHECK(shard.hit_rate(100, CachePolicy::kLru).value ==
        Approx(access.hit_rate(800, CachePolicy::kLru).value).epsilon(1e-6));
  // In steps as at once.
  CHECK(access.random_subset(50'000).random_subset(12'500).unique(1e4).value ==
        Approx(shard.unique(1e4).value));
  // Rows that a recording never saw receive nothing.
  const auto [unseen, none] = Access::indices(100, {1, 2, 1}).ranks(50, 60);
  CHECK(none == 0);
  CHECK(unseen.rows() == 10);
}

TEST_CASE("hashed rows follow an explicit hash", "[core][access][oracle]") {
  const auto exponent = GENERATE(0.6, 1.05);
  const auto buckets = GENERATE(values<std::int64_t>({50'000, 5'000, 300}));
  constexpr std::int64_t kRows = 100'000;
  CAPTURE(exponent, buckets);
  const Access access = Access::zipf(kRows, exponent, 17);
  std::vector<double> q(static_cast<std::size_t>(buckets));
  for (std::int64_t rank = 0; rank < kRows; ++rank) {
    q[static_cast<std::size_t>(access.row_of_rank(rank) % buckets)] +=
        access.probability(static_cast<double>(rank));
  }
  std::sort(q.begin(), q.end(), std::greater<>());
  const Access hashed = access.remapped(buckets, Access::Remap::kMod);
  const Access folded = access.remapped(buckets, Access::Remap::kFrequency);
  CHECK(hashed.rows() == buckets);
  for (const double n : {100.0, 1e4, 1e5}) {
    double exact = 0;
    for (const double x : q) {
      exact -= std::expm1(n * std::log1p(-x));
    }
    CHECK(hashed.unique(n).value == Approx(exact).epsilon(0.015));
  }
  double mass = 0;
  std::size_t next = 0;
  for (const double share : {0.01, 0.1, 0.5, 0.9}) {
    const double k = std::ceil(share * static_cast<double>(buckets));
    for (; next < static_cast<std::size_t>(k); ++next) {
      mass += q[next];
    }
    CHECK(hashed.cdf(k).value == Approx(mass).margin(0.015));
  }
  // Keeping hot rows apart: its k hottest rows, k < buckets, carry what they did in the table.
  const auto k = static_cast<double>(buckets) / 4;
  CHECK(folded.cdf(k + 1).value >= access.cdf(k).value);
  CHECK(folded.probability(static_cast<double>(buckets - 1)) >= 0);
  // And hashing never touches more rows than the table had to offer.
  CHECK(unique_of(hashed, 1e5) <= unique_of(access, 1e5));
  CHECK(unique_of(folded, 1e5) <= unique_of(access, 1e5));
}

TEST_CASE("a frequency-aware map keeps at least the head of a random one",
          "[core][access][property]") {
  const Access access = Access::zipf(1'000'000, 1.05);
  const Access mod = access.remapped(100'000, Access::Remap::kMod);
  const Access frequency = access.remapped(100'000, Access::Remap::kFrequency);
  for (const double k : {1.0, 10.0, 1000.0, 20'000.0, 99'999.0}) {
    CAPTURE(k);
    CHECK(frequency.cdf(k).value >= mod.cdf(k).value);
  }
}

TEST_CASE("row ids are a permutation of ranks", "[core][access][property]") {
  for (const std::int64_t rows : {1, 2, 3, 5, 8, 17, 1000, 1024, 65'537}) {
    for (const std::uint64_t seed : {0u, 1u, 99u}) {
      CAPTURE(rows, seed);
      const Access access = Access::zipf(rows, 1, seed);
      std::vector<bool> taken(static_cast<std::size_t>(rows));
      for (std::int64_t rank = 0; rank < rows; ++rank) {
        const std::int64_t row = access.row_of_rank(rank);
        REQUIRE((row >= 0 && row < rows));
        REQUIRE_FALSE(taken[static_cast<std::size_t>(row)]);
        taken[static_cast<std::size_t>(row)] = true;
      }
    }
  }
  for (const auto& [name, access] : laws()) {
    CAPTURE(name);
    std::vector<bool> taken(
        static_cast<std::size_t>(std::min<std::int64_t>(access.rows(), 400'000)));
    if (static_cast<std::int64_t>(taken.size()) < access.rows()) {
      continue;
    }
    for (std::int64_t rank = 0; rank < access.rows(); ++rank) {
      const auto row = static_cast<std::size_t>(access.row_of_rank(rank));
      REQUIRE(row < taken.size());
      REQUIRE_FALSE(taken[row]);
      taken[row] = true;
    }
  }
}

TEST_CASE("hot rows land evenly on shards", "[core][access][property]") {
  // 1000 hottest ranks over 8 blocks of ids, 50 seeds: 6250 each, deviation sqrt(6250 * 7/8) = 74.
  std::vector<int> block(8);
  std::vector<int> stripe(8);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Access access = Access::zipf(1'000'000, 1, seed);
    for (std::int64_t rank = 0; rank < 1000; ++rank) {
      ++block[static_cast<std::size_t>(access.row_of_rank(rank) / 125'000)];
      ++stripe[static_cast<std::size_t>(access.row_of_rank(rank) % 8)];
    }
  }
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(std::abs(block[i] - 6250) < 5 * 74);
    CHECK(std::abs(stripe[i] - 6250) < 5 * 74);
  }
}
