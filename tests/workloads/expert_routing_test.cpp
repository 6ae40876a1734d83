#include "workloads/expert_routing.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

using namespace stepcast;
using workloads::expert_load;
using workloads::expert_shares;

namespace {

MixtureOfExperts experts(std::int64_t count, std::int64_t per_token, double exponent = 0) {
  MixtureOfExperts moe;
  moe.experts = count;
  moe.per_token = per_token;
  moe.ffn_hidden = 8;
  if (exponent > 0) {
    moe.routing = std::make_shared<const Access>(Access::zipf(count, exponent, 3));
  }
  return moe;
}

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

/// How often each expert is among the first k of an exponential race with rates p: the same as
/// drawing k distinct experts one after the other by their popularity.
std::vector<double> drawn(const MixtureOfExperts& moe, int tokens) {
  const auto count = static_cast<std::size_t>(moe.experts);
  std::vector<double> popularity(count);
  for (std::int64_t r = 0; r < moe.experts; ++r) {
    popularity[static_cast<std::size_t>(moe.routing->row_of_rank(r))] =
        moe.routing->probability(static_cast<double>(r));
  }
  std::mt19937_64 random(1);
  std::exponential_distribution<double> exponential;
  std::vector<double> hits(count, 0.0);
  std::vector<std::pair<double, std::size_t>> race(count);
  for (int t = 0; t < tokens; ++t) {
    for (std::size_t e = 0; e < count; ++e) {
      race[e] = {exponential(random) / popularity[e], e};
    }
    std::partial_sort(race.begin(), race.begin() + moe.per_token, race.end());
    for (std::int64_t i = 0; i < moe.per_token; ++i) {
      hits[race[static_cast<std::size_t>(i)].second] += 1.0 / tokens;
    }
  }
  return hits;
}

}  // namespace

TEST_CASE("each token goes to its number of distinct experts", "[workloads][experts]") {
  const std::int64_t k = GENERATE(1, 2, 8, 64);
  const double exponent = GENERATE(0.0, 0.4, 1.0);
  const auto shares = expert_shares(experts(64, k, exponent));
  CHECK(sum(shares) == Approx(static_cast<double>(k)));
  CHECK(*std::max_element(shares.begin(), shares.end()) <= 1 + 1e-12);
  if (exponent == 0 || k == 64) {
    CHECK(shares.front() == Approx(static_cast<double>(k) / 64));
    CHECK(shares.back() == shares.front());
  }
}

TEST_CASE("loads are those of drawn tokens", "[workloads][experts]") {
  const std::int64_t k = GENERATE(1, 2, 8);
  const double exponent = GENERATE(0.3, 0.8);
  const MixtureOfExperts moe = experts(32, k, exponent);
  const auto shares = expert_shares(moe);
  const int tokens = 20'000;
  const auto hits = drawn(moe, tokens);
  for (std::size_t e = 0; e < shares.size(); ++e) {
    const double noise = std::sqrt(shares[e] * (1 - shares[e]) / tokens);
    CHECK(shares[e] == Approx(hits[e]).margin(4 * noise));
  }
  // Eight ranks of four experts: what they receive from one another, and the most loaded.
  const auto load = expert_load(moe, 1000, 8);
  double most = 0;
  for (std::size_t r = 0; r < 8; ++r) {
    const double copies =
        1000 * std::accumulate(hits.begin() + static_cast<std::ptrdiff_t>(4 * r),
                               hits.begin() + static_cast<std::ptrdiff_t>(4 * r + 4), 0.0);
    const double noise = 1000 * std::sqrt(copies / 1000 / tokens);
    CHECK(load.to[r] == Approx(copies).margin(4 * noise));
    most = std::max(most, 8 * copies);
  }
  CHECK(load.most == Approx(most).epsilon(0.06));
  CHECK(load.sent == Approx(1000.0 * static_cast<double>(k)));
}

TEST_CASE("equal experts load all ranks alike", "[workloads][experts]") {
  const auto load = expert_load(experts(256, 8), 4096, 64);
  CHECK(load.even());
  CHECK(load.sent == 4096 * 8);
  CHECK(load.most == 4096 * 8);
}

TEST_CASE("a capacity clips what popular experts take", "[workloads][experts]") {
  MixtureOfExperts moe = experts(16, 2, 1.0);
  const auto whole = expert_load(moe, 4096, 4);
  CHECK(whole.most > 1.2 * whole.sent);
  double before = 0;
  for (const double factor : {0.5, 1.0, 1.25, 2.0, 8.0}) {
    moe.capacity_factor = factor;
    const auto load = expert_load(moe, 4096, 4);
    const double capacity = std::ceil(factor * 4096 * 2 / 16);
    CHECK(load.most <= 4 * 4 * capacity);  // 4 ranks send to 4 experts
    CHECK(load.sent <= whole.sent * (1 + 1e-12));
    CHECK(load.sent >= before);
    before = load.sent;
  }
  CHECK(before == Approx(whole.sent));  // 8 times the mean is more than all tokens of an expert
  moe.capacity_factor =
      0.5;  // every expert sees more than half the mean: 0.5 * 8192 remain at most
  CHECK(expert_load(moe, 4096, 4).sent <= 4096);
  CHECK(expert_load(experts(16, 2), 4096, 4).sent == 8192);
}
