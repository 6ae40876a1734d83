#include <catch2/catch.hpp>
#include <set>

#include "runtime/calibration/embedding_sweep.h"

namespace stepcast::runtime::calibration {

TEST_CASE("the sweep holds every pair of exponent and dim, within its bounds",
          "[runtime][calibration]") {
  EmbeddingSweepOptions options;
  options.cases_per_cell = 3;
  const auto cases = embedding_cases(options);
  REQUIRE(cases.size() == 3 * swept_exponents().size() * swept_dims().size());
  std::set<std::pair<double, std::int64_t>> pairs;
  for (const EmbeddingCase& c : cases) {
    pairs.emplace(c.zipf, c.dim);
    CHECK(c.rows >= 1000);
    CHECK(4 * c.rows * c.dim * c.tables <= 480'000'000);
    CHECK(c.lookups() >= 1000);
    CHECK(c.lookups() <= 100'000);
  }
  CHECK(pairs.size() == swept_exponents().size() * swept_dims().size());
  // Two sweeps of one seed measure the same cases, of another seed others.
  const auto again = embedding_cases(options);
  CHECK(cases[7].rows == again[7].rows);
  options.seed = 2;
  CHECK(cases[7].rows != embedding_cases(options)[7].rows);
}

TEST_CASE("a short sweep measures each case", "[runtime][calibration]") {
  EmbeddingSweepOptions options;
  options.cases_per_cell = 1;
  options.seconds = 0.5;  // every case stops at its least repeats
  const auto samples = measure_embedding(options);
  REQUIRE(samples.size() == swept_exponents().size() * swept_dims().size());
  std::size_t usable = 0;
  for (const EmbeddingSample& s : samples) {
    if (!s.unstable) {
      ++usable;
      CHECK(s.repeats >= 9);
      // A row of fp32 comes no faster than 2 TB/s, and a lookup takes less than 10 us.
      const auto lookups = static_cast<double>(s.shape.lookups());
      CHECK(s.forward.base() >= 4 * lookups * static_cast<double>(s.shape.dim) / 2e12);
      CHECK(s.forward.base() <= lookups * 1e-5);
      CHECK(s.backward > s.forward * 0.1);
    }
  }
  CHECK(usable > 0);
}

TEST_CASE("two rounds of a case become one", "[runtime][calibration]") {
  EmbeddingSample before, after;
  before.forward = microseconds(4);
  before.backward = microseconds(10);
  before.repeats = 20;
  before.spread = 0.04;
  after.forward = microseconds(9);  // sqrt(4 * 9) = 6, moved by 9 / 4
  after.backward = microseconds(10);
  after.repeats = 12;
  after.spread = 0.01;
  after.unstable = true;  // one round without agreement voids the case
  const EmbeddingSample one = both(before, after);
  CHECK(one.forward / microseconds(1) == Approx(6));
  CHECK(one.backward / microseconds(1) == Approx(10));
  CHECK(one.moved[0] == Approx(2.25));
  CHECK(one.moved[1] == Approx(1));
  CHECK(one.spread == 0.04);
  CHECK(one.repeats == 32);
  CHECK(one.unstable);
}

}  // namespace stepcast::runtime::calibration
