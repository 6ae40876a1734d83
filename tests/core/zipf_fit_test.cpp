#include <catch2/catch.hpp>

#include "core/access/access.h"
#include "core/access/id_sketch.h"
#include "core/access/stack_distance.h"
#include "core/access/zipf_fit.h"

using namespace stepcast;

namespace {

std::vector<std::int64_t> drawn(const Access& law, std::size_t count) {
  std::vector<std::int64_t> ids(count);
  AccessSampler(law, 7).fill_rows(ids);
  return ids;
}

}  // namespace

TEST_CASE("the exponent of a zipf law is found from lookups drawn from it", "[core][access]") {
  // From fewer lookups than rows up to many more; sampling noise of the shares is near 1 / sqrt(n).
  for (const double exponent : {0.0, 0.6, 1.05, 1.4, 2.0}) {
    for (const auto& [rows, lookups] : {std::pair(1'000'000, 300'000), std::pair(5'000, 500'000)}) {
      CAPTURE(exponent, rows, lookups);
      const auto ids = drawn(Access::zipf(rows, exponent), static_cast<std::size_t>(lookups));
      const auto n = static_cast<double>(lookups);
      const ZipfFit fit = fit_zipf(rows, reuse_bins(ids), n);
      // Near 0 the shares hardly move with the exponent.
      CHECK(fit.exponent == Approx(exponent).margin(exponent > 0 ? 0.02 : 0.03));
      CHECK(fit.error < 0.01);
      IdSketch sketch;  // 65,536 of the rows at most, so its bins carry 1.5 % of error
      sketch.add(ids);
      CHECK(fit_zipf(rows, sketch.bins(rows), n).exponent == Approx(exponent).margin(0.05));
    }
  }
}

TEST_CASE("what follows no zipf law says so by its error", "[core][access]") {
  // Half of 200,000 lookups to one row, half spread evenly: under a zipf law the second row would
  // have a large share too.
  std::vector<std::int64_t> ids(100'000, 0);
  const auto rest = drawn(Access::uniform(100'000), 100'000);
  ids.insert(ids.end(), rest.begin(), rest.end());
  CHECK(fit_zipf(100'000, reuse_bins(ids), 200'000).error > 0.05);
  // One row, or none seen twice: any answer must be finite.
  const std::vector<std::int64_t> one{3}, apart{1, 2, 3};
  CHECK(fit_zipf(4, reuse_bins(one), 1).error <= 1);
  CHECK(fit_zipf(1'000'000, reuse_bins(apart), 3).error < 0.01);
}
