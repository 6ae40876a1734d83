#include "core/graph/expert_draw.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

using namespace stepcast;

namespace {

/// Experts of all of `tokens` tokens from `first` on, by expert.
std::vector<std::int64_t> counted(const ExpertDraw& draw, std::int64_t first, std::int64_t tokens,
                                  std::uint64_t phase) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(draw.experts()), 0);
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(draw.per_token()));
  for (std::int64_t t = first; t < first + tokens; ++t) {
    draw.experts_of(t, phase, chosen);
    CHECK(std::set<std::int32_t>(chosen.begin(), chosen.end()).size() == chosen.size());
    for (const std::int32_t e : chosen) {
      ++counts.at(static_cast<std::size_t>(e));
    }
  }
  return counts;
}

struct Law {
  std::vector<double> shares;
  std::int64_t per_token;
};

const std::vector<Law> kLaws{
    {std::vector<double>(8, 0.25), 2}, {std::vector<double>(6, 1.0 / 3), 2},
    {{1.0, 0.7, 0.2, 0.1}, 2},         {{0.5, 0.25, 0.125, 0.125}, 1},
    {std::vector<double>(4, 1.0), 4},  {{0.9, 0.8, 0.6, 0.4, 0.2, 0.1, 0.0}, 3}};

}  // namespace

TEST_CASE("experts are drawn by their shares, each once a token", "[core][experts]") {
  const Law law = GENERATE(from_range(kLaws));
  const ExpertDraw draw(law.shares, law.per_token);
  const std::int64_t tokens = GENERATE(1, 7, 16, 96, 1024);
  for (std::int64_t block = 0; block < 5; ++block) {
    const std::uint64_t phase = expert_phase(block, 3);
    const std::int64_t first = block * tokens;
    const auto counts = counted(draw, first, tokens, phase);
    for (std::size_t e = 0; e < counts.size(); ++e) {
      const auto expert = static_cast<std::int64_t>(e);
      CHECK(draw.count(first, tokens, phase, expert) == counts[e]);
      CHECK(counts[e] <= draw.most(tokens, expert, expert + 1));
      // A power of two from a multiple of it on: within one of the expectation.
      if ((tokens & (tokens - 1)) == 0) {
        CHECK(std::abs(static_cast<double>(counts[e]) -
                       static_cast<double>(tokens) * law.shares[e]) < 1 + 1e-9);
      }
    }
    for (std::size_t begin = 0; begin < counts.size(); ++begin) {
      for (std::size_t end = begin + 1; end <= counts.size(); ++end) {
        CHECK(std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(begin),
                              counts.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{0}) <=
              draw.most(tokens, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)));
      }
    }
  }
}

TEST_CASE("even shares of a power of two of tokens are exact", "[core][experts]") {
  const ExpertDraw draw(std::vector<double>(16, 0.25), 4);
  for (const std::int64_t tokens : {16, 64, 4096}) {
    CHECK(draw.most(tokens, 0, 4) == tokens);  // four of sixteen experts, 0.25 each
    CHECK(draw.most(tokens, 3, 4) == tokens / 4);
    for (std::int64_t e = 0; e < 16; ++e) {
      CHECK(draw.count(5 * tokens, tokens, expert_phase(9, 1), e) == tokens / 4);
    }
  }
}

TEST_CASE("the draw changes with the step and the layer", "[core][experts]") {
  const ExpertDraw draw(std::vector<double>(8, 0.25), 2);
  std::set<std::vector<std::int32_t>> choices;
  for (std::int64_t step = 0; step < 4; ++step) {
    for (std::int64_t layer = 0; layer < 4; ++layer) {
      std::vector<std::int32_t> all;
      std::vector<std::int32_t> chosen(2);
      for (std::int64_t token = 0; token < 16; ++token) {
        draw.experts_of(token, expert_phase(step, layer), chosen);
        all.insert(all.end(), chosen.begin(), chosen.end());
      }
      choices.insert(all);
    }
  }
  CHECK(choices.size() > 8);
}
