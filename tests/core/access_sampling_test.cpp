#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/access/access.h"
#include "core/access/internal/popularity_curve.h"
#include "core/error.h"

using namespace stepcast;

namespace {

std::vector<std::int64_t> draw_rows(const Access& access, std::size_t count, std::uint64_t seed) {
  std::vector<std::int64_t> rows(count);
  AccessSampler(access, seed).fill_rows(rows);
  return rows;
}

std::vector<ReuseBin> exact_bins(const std::vector<std::int64_t>& recorded) {
  std::vector<std::int64_t> sorted = recorded;
  std::sort(sorted.begin(), sorted.end());
  std::map<double, double> rows_with;
  for (auto first = sorted.begin(); first != sorted.end();) {
    const auto last = std::upper_bound(first, sorted.end(), *first);
    rows_with[static_cast<double>(last - first)] += 1;
    first = last;
  }
  std::vector<ReuseBin> bins;
  for (const auto& [count, rows] : rows_with) {
    bins.push_back({count - 1, count, rows, rows * count});
  }
  return bins;
}

/// Bins (0,1], (1,2], (2,4], (4,8], ... of the same counts.
std::vector<ReuseBin> doubling_bins(const std::vector<std::int64_t>& recorded) {
  std::map<double, ReuseBin> bins;
  for (const ReuseBin& exact : exact_bins(recorded)) {
    const double high = std::exp2(std::ceil(std::log2(exact.reuse_high)));
    ReuseBin& bin = bins[high];
    bin.reuse_low = high == 1 ? 0 : high / 2;
    bin.reuse_high = high;
    bin.unique_rows += exact.unique_rows;
    bin.accesses += exact.accesses;
  }
  std::vector<ReuseBin> result;
  for (const auto& [high, bin] : bins) {
    result.push_back(bin);
  }
  return result;
}

/// Chi-square statistic of `draws` ranks over groups [edges[i], edges[i+1]), in standard deviations
/// from its mean.
double chi_square_z(const Access& access, const std::vector<std::int64_t>& edges, int draws) {
  AccessSampler sampler(access, 12345);
  std::vector<double> seen(edges.size() - 1);
  for (int i = 0; i < draws; ++i) {
    const std::int64_t rank = sampler.next_rank();
    const auto above = std::upper_bound(edges.begin(), edges.end(), rank);
    if (above == edges.begin() || above == edges.end()) {
      FAIL("rank " << rank << " is outside the table");
    }
    seen[static_cast<std::size_t>(above - edges.begin() - 1)] += 1;
  }
  double chi = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    double expected = 0;
    if (edges[i + 1] - edges[i] < 2000) {
      for (std::int64_t k = edges[i]; k < edges[i + 1]; ++k) {
        expected += draws * access.probability(static_cast<double>(k));
      }
    } else {
      expected = draws * (access.cdf(static_cast<double>(edges[i + 1])).value -
                          access.cdf(static_cast<double>(edges[i])).value);
    }
    chi += (seen[i] - expected) * (seen[i] - expected) / expected;
  }
  const double freedom = static_cast<double>(seen.size()) - 1;
  return (chi - freedom) / std::sqrt(2 * freedom);
}

}  // namespace

TEST_CASE("draws follow the law, rank by rank and bin by bin", "[core][access][property]") {
  std::vector<std::int64_t> each(101);
  for (std::size_t i = 0; i < each.size(); ++i) {
    each[i] = static_cast<std::int64_t>(i);
  }
  for (const double exponent : {0.0, 0.7, 1.0, 1.3}) {
    CAPTURE(exponent);
    CHECK(std::abs(chi_square_z(Access::zipf(100, exponent), each, 200'000)) < 4);
  }
  CHECK(std::abs(chi_square_z(Access::uniform(100), each, 200'000)) < 4);
  // Inside one wide bin the ranks differ by 1.5 %: ranks 2*10^5 on, in steps that cut across bins.
  std::vector<std::int64_t> edges = {0};
  for (double edge = 1; edge < 1e9; edge *= 1.0033) {
    const auto next = static_cast<std::int64_t>(edge);
    if (next - edges.back() >= 1 + edges.back() / 400) {
      edges.push_back(next);
    }
  }
  edges.push_back(1'000'000'000);
  for (const double exponent : {0.6, 1.05}) {
    CAPTURE(exponent);
    CHECK(std::abs(chi_square_z(Access::zipf(1'000'000'000, exponent), edges, 4'000'000)) < 4);
  }
  // A steep law over a wide bin: a uniform draw in the bin would be off by many deviations.
  const Access steep = Access::zipf(1'000'000, 4).ranks(300, 1'000'000).first;
  CHECK(std::abs(chi_square_z(steep, {0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 50, 200, 999'700},
                              1'000'000)) < 4);
  // Derived laws.
  const Access parent = Access::zipf(1000, 1.1);
  CHECK(std::abs(chi_square_z(parent.random_subset(100), each, 200'000)) < 4);
  CHECK(std::abs(chi_square_z(parent.remapped(100, Access::Remap::kMod), each, 200'000)) < 4);
  CHECK(std::abs(chi_square_z(parent.remapped(100, Access::Remap::kFrequency), each, 200'000)) < 4);
  CHECK(std::abs(chi_square_z(parent.ranks(50, 150).first, each, 200'000)) < 4);
  CHECK(std::abs(chi_square_z(
            Access::histogram(100, {{0, 1, 60, 60}, {1, 2, 30, 60}, {2, 40, 10, 200}}, 320),
            {0, 1, 5, 10, 20, 40, 70, 100}, 200'000)) < 4);
}

TEST_CASE("distinct rows among draws match U(n)", "[core][access][oracle]") {
  const Access access = Access::zipf(100'000, 0.9, 5);
  double distinct = 0;
  double once = 0;
  constexpr int kTrials = 20;
  for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
    std::map<std::int64_t, int> counts;
    for (const std::int64_t row : draw_rows(access, 50'000, trial)) {
      ++counts[row];
    }
    distinct += static_cast<double>(counts.size()) / kTrials;
    for (const auto& [row, count] : counts) {
      once += count == 1 ? 1.0 / kTrials : 0;
    }
  }
  // Var U < U(2n) - U(n) < U ~ 2*10^4: a deviation of the mean of at most 33, 4 of them 0.6 %.
  CHECK(access.unique(50'000).value == Approx(distinct).epsilon(0.006));
  CHECK(access.seen_once(50'000).value == Approx(once).epsilon(0.01));
}

TEST_CASE("a sampler is a function of its seed", "[core][access]") {
  const Access access = Access::zipf(1'000'000, 1);
  CHECK(draw_rows(access, 1000, 3) == draw_rows(access, 1000, 3));
  CHECK(draw_rows(access, 1000, 3) != draw_rows(access, 1000, 4));
  AccessSampler first(access, 9);
  first.next_rank();
  AccessSampler copy = first;
  const std::int64_t next = first.next_rank();
  first.next_rank();
  CHECK(copy.next_rank() == next);
  // Row ids: the same ranks through the permutation of the law's own seed.
  AccessSampler ranks(access, 3);
  for (const std::int64_t row : draw_rows(access, 100, 3)) {
    CHECK(row == access.row_of_rank(ranks.next_rank()));
  }
  CHECK(access.row_of_rank(0) != Access::zipf(1'000'000, 1, 1).row_of_rank(0));
}

TEST_CASE("a recording is replayed and keeps its own ids", "[core][access]") {
  const Access access = Access::indices(10, {4, 2, 4, 9, 4, 2});
  CHECK(draw_rows(access, 8, 0) == std::vector<std::int64_t>{4, 2, 4, 9, 4, 2, 4, 2});
  CHECK(draw_rows(access, 2, 3) == std::vector<std::int64_t>{9, 4});
  CHECK(access.row_of_rank(0) == 4);
  CHECK(access.row_of_rank(1) == 2);
  CHECK(access.row_of_rank(2) == 9);
  CHECK(access.row_of_rank(3) == 0);  // then the rows never seen, by id
  CHECK(access.row_of_rank(9) == 8);
  CHECK(access.probability(0) == Approx(0.5));
  CHECK(access.probability(1) == Approx(1.0 / 3));
  CHECK(access.probability(5) == 0);
  const Access folded = access.remapped(4, Access::Remap::kMod);  // ids modulo 4: 0 2 0 1 0 2
  CHECK(folded.recorded() == std::vector<std::int64_t>{0, 2, 0, 1, 0, 2});
  const Access kept = access.remapped(2, Access::Remap::kFrequency);  // the hottest, and the rest
  CHECK(kept.recorded() == std::vector<std::int64_t>{0, 1, 0, 1, 0, 1});
}

TEST_CASE("inside a sample the answers are means over its subsets", "[core][access][oracle]") {
  const std::vector<std::int64_t> recorded = {0, 1, 0, 2, 3, 0, 4, 1, 5, 0};
  const Access access = Access::indices(20, recorded);
  const Access counts = Access::histogram(20, exact_bins(recorded), 10);
  for (int n = 1; n <= 10; ++n) {
    double subsets = 0;
    double distinct = 0;
    double once = 0;
    for (unsigned mask = 0; mask < 1u << recorded.size(); ++mask) {
      if (std::popcount(mask) != n) {
        continue;
      }
      std::map<std::int64_t, int> seen;
      for (std::size_t i = 0; i < recorded.size(); ++i) {
        if ((mask >> i & 1) != 0) {
          ++seen[recorded[i]];
        }
      }
      subsets += 1;
      distinct += static_cast<double>(seen.size());
      for (const auto& [row, count] : seen) {
        once += count == 1 ? 1 : 0;
      }
    }
    CAPTURE(n);
    CHECK(access.unique(n).value == Approx(distinct / subsets).epsilon(1e-12));
    CHECK(counts.unique(n).value == Approx(distinct / subsets).epsilon(1e-12));
    CHECK(access.seen_once(n).value == Approx(once / subsets).epsilon(1e-12));
    CHECK_FALSE(access.unique(n).outside_sample);
  }
}

TEST_CASE("absence from a part of the sample is a ratio of binomials", "[core][access][oracle]") {
  const auto exact = [](double total, double count, double lookups) {
    return std::exp(std::lgamma(total - count + 1) - std::lgamma(total - count - lookups + 1) -
                    std::lgamma(total + 1) + std::lgamma(total - lookups + 1));
  };
  for (const double count : {1.0, 2.5, 63.0, 65.0, 80.25, 400.0}) {
    for (const double lookups : {1.0, 50.0, 70.5, 500.0}) {
      CAPTURE(count, lookups);
      CHECK(internal::absence(1000, count, lookups) ==
            Approx(exact(1000, count, lookups)).epsilon(2e-5).margin(1e-15));
    }
  }
  CHECK(internal::absence(1000, 600, 401) == 0);
  CHECK(internal::absence(1000, 0, 401) == 1);
  CHECK(internal::absence(10, 10, 0) == 1);
}

TEST_CASE("a sample answers inside itself and gives bounds outside", "[core][access][oracle]") {
  // Rule 7: zipf 0.8, 10^6 rows, n0 = 10^6 lookups. The sample saw 391 k rows; at 2 n0 the truth is
  // 584 k, the counts used as probabilities would say 356 k, and the bounds are 391 k to 641 k.
  const Access truth = Access::zipf(1'000'000, 0.8);
  const std::vector<std::int64_t> recorded = draw_rows(truth, 1'000'000, 11);
  const Access exact = Access::indices(1'000'000, recorded);
  const Access binned = Access::histogram(1'000'000, doubling_bins(recorded), 1e6);
  CHECK(truth.unique(1e6).value == Approx(391e3).margin(500));
  CHECK(truth.unique(2e6).value == Approx(584e3).margin(500));

  double plug_in = 0;
  for (const ReuseBin& bin : exact_bins(recorded)) {
    plug_in -= bin.unique_rows * std::expm1(2e6 * std::log1p(-bin.reuse_high / 1e6));
  }
  CHECK(plug_in == Approx(356e3).epsilon(0.005));

  for (const Access& access : {exact, binned}) {
    const AccessAnswer at_sample = access.unique(1e6);
    CHECK_FALSE(at_sample.outside_sample);
    CHECK(at_sample.value == Approx(truth.unique(1e6).value).epsilon(0.002));
    CHECK(access.unique(1e5).value == Approx(truth.unique(1e5).value).epsilon(0.002));
    CHECK(access.unique(5e5).value == Approx(truth.unique(5e5).value).epsilon(0.002));
    const AccessAnswer beyond = access.unique(2e6);
    CHECK(beyond.outside_sample);
    CHECK(beyond.low == Approx(391e3).epsilon(0.003));
    CHECK(beyond.high == Approx(641e3).epsilon(0.003));
    CHECK(beyond.low < truth.unique(2e6).value);
    CHECK(beyond.high > truth.unique(2e6).value);
    CHECK(beyond.value == Approx(truth.unique(2e6).value).epsilon(0.02));  // the fitted point
    CHECK(access.unique(1e9).high == 1e6);                              // never more than the table
    CHECK(access.unique(1e6 + 1e-3).value == Approx(at_sample.value));  // no jump at n0

    // The head is known, the tail overstated: flagged, with the truth inside the bounds.
    CHECK_FALSE(access.cdf(100).outside_sample);
    CHECK(access.cdf(100).value == Approx(truth.cdf(100).value).epsilon(0.02));
    for (const double k : {2e4, 1e5, 3e5}) {
      const AccessAnswer head = access.cdf(k);
      const AccessAnswer lru = access.hit_rate(k, CachePolicy::kLru);
      CHECK(head.outside_sample);
      CHECK(head.low <= truth.cdf(k).value);
      CHECK(head.high >= truth.cdf(k).value);
      CHECK(lru.outside_sample);
      CHECK(lru.low <= truth.hit_rate(k, CachePolicy::kLru).value);
      CHECK(lru.high >= truth.hit_rate(k, CachePolicy::kLru).value);
    }
  }
}

TEST_CASE("singles in a wide first bin are bounded by its mean count", "[core][access]") {
  // 100 rows seen 1 to 4 times, 160 in all: at most 80 singles (80 * 1 + 20 * 4 = 160).
  const Access access = Access::histogram(1000, {{0, 4, 100, 160}}, 160);
  CHECK(access.unique(320).high == Approx(100 + 160 * 80.0 / 160));
  CHECK(access.unique(320).low == Approx(100));
}
