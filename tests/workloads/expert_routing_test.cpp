#include "workloads/transformer/expert_routing.h"
#include "core/access/access.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

using namespace stepcast;
using workloads::expert_reach;
using workloads::expert_shares;

namespace {

auto expert_load(const MixtureOfExperts& moe, std::int64_t tokens, std::int64_t ranks) {
  return workloads::expert_load(moe, expert_shares(moe), tokens, ranks);
}

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

MixtureOfExperts grouped(std::int64_t count, std::int64_t groups, std::int64_t taken,
                         std::int64_t per_token) {
  MixtureOfExperts moe = experts(count, per_token);
  moe.groups = groups;
  moe.groups_per_token = taken;
  return moe;
}

/// Machines that hold an expert of a drawn token, and their spread over tokens. Groups: any of
/// them, or those whose best `best` experts have the largest sum of scores. Experts of the groups
/// taken: those of the largest scores, which are independent and alike.
std::pair<double, double> drawn_machines(const MixtureOfExperts& moe, std::int64_t machines,
                                         std::int64_t best, int tokens) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform;
  const std::int64_t size = moe.experts / moe.groups;
  double sum = 0;
  double squares = 0;
  for (int t = 0; t < tokens; ++t) {
    std::vector<std::pair<double, std::int64_t>> groups;
    std::vector<std::vector<std::pair<double, std::int64_t>>> scores;
    for (std::int64_t g = 0; g < moe.groups; ++g) {
      auto& of_group = scores.emplace_back();
      for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
        of_group.emplace_back(uniform(random), e);
      }
      std::sort(of_group.rbegin(), of_group.rend());
      double score = best > 0 ? 0 : uniform(random);
      for (std::int64_t i = 0; i < best; ++i) {
        score += of_group[static_cast<std::size_t>(i)].first;
      }
      groups.emplace_back(score, g);
    }
    std::sort(groups.rbegin(), groups.rend());
    std::vector<std::pair<double, std::int64_t>> taken;
    for (std::int64_t g = 0; g < moe.groups_per_token; ++g) {
      const auto& of_group =
          scores[static_cast<std::size_t>(groups[static_cast<std::size_t>(g)].second)];
      taken.insert(taken.end(), of_group.begin(), of_group.end());
    }
    std::sort(taken.rbegin(), taken.rend());
    std::set<std::int64_t> reached;
    for (std::int64_t i = 0; i < moe.per_token; ++i) {
      reached.insert(taken[static_cast<std::size_t>(i)].second * machines / moe.experts);
    }
    const auto count = static_cast<double>(reached.size());
    sum += count;
    squares += count * count;
  }
  const double mean = sum / tokens;
  return {mean, std::sqrt(std::max(0.0, squares / tokens - mean * mean))};
}

/// Expected distinct machines of a token.
double machines_reached(const MixtureOfExperts& moe, std::int64_t machines) {
  const std::int64_t held = moe.experts / machines;
  double sum = 0;
  for (std::int64_t m = 0; m < machines; ++m) {
    sum += expert_reach(moe, m * held, (m + 1) * held);
  }
  return sum;
}

}  // namespace

TEST_CASE("a token reaches as many machines as a drawn one", "[workloads][experts][oracle]") {
  // Groups that are machines, several machines, or parts of one; with a limit and without.
  const auto [count, groups, taken, per_token, machines] =
      GENERATE(table<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>(
          {{256, 8, 4, 8, 8},
           {256, 8, 4, 8, 64},
           {256, 8, 2, 8, 4},
           {256, 8, 8, 8, 8},
           {160, 8, 3, 6, 8},
           {64, 16, 4, 6, 4},
           {64, 1, 1, 8, 16},
           {16, 4, 1, 4, 4},
           {16, 4, 2, 1, 8}}));
  CAPTURE(count, groups, taken, per_token, machines);
  const MixtureOfExperts moe = grouped(count, groups, taken, per_token);
  constexpr int kTokens = 20'000;
  const auto [mean, spread] = drawn_machines(moe, machines, 0, kTokens);
  CHECK(machines_reached(moe, machines) ==
        Approx(mean).margin(4 * spread / std::sqrt(kTokens) + 1e-9));
}

TEST_CASE("a token reaches no fewer machines where it may choose among more",
          "[workloads][experts][property]") {
  const std::int64_t machines = GENERATE(2, 4, 8, 16);
  const std::int64_t per_token = GENERATE(1, 2, 8);
  double before = 0;
  for (std::int64_t taken = 1; taken <= 8; ++taken) {
    const double reached = machines_reached(grouped(128, 8, taken, per_token), machines);
    CAPTURE(machines, per_token, taken);
    CHECK(reached >= before - 1e-12);
    CHECK(reached >= 1 - 1e-12);
    const double most = static_cast<double>(
        std::min({per_token, machines, taken * std::max<std::int64_t>(1, machines / 8)}));
    CHECK(reached <= most + 1e-12);
    before = reached;
  }
  // All groups is no limit.
  CHECK(before == Approx(machines_reached(experts(128, per_token), machines)).epsilon(1e-12));
  CHECK(machines_reached(grouped(128, 8, 3, 8), 1) == Approx(1).epsilon(1e-12));
  // Without groups, 8 of 256 experts on 8 machines: 8 (1 - C(224, 8) / C(256, 8)) = 5.2947.
  CHECK(machines_reached(experts(256, 8), 8) == Approx(5.2947).epsilon(1e-4));
}

TEST_CASE("DeepSeek-V3's router leaves fewer of its groups empty", "[workloads][experts][oracle]") {
  // Groups by the sum of their best two scores: what the formula says is a lower bound, 4 an upper.
  const MixtureOfExperts moe = grouped(256, 8, 4, 8);
  const auto [mean, spread] = drawn_machines(moe, 8, 2, 10'000);
  CHECK(machines_reached(moe, 8) == Approx(3.629).epsilon(1e-3));
  CHECK(mean == Approx(3.95).margin(4 * spread / 100));
  CHECK(mean <= 4);
}

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
