#include "core/graph/expert_draw.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/graph/expert_points.h"
#include "core/split_mix.h"

namespace stepcast {
namespace {

using expert_points::kBits;
using expert_points::kUnit;

/// Aligned blocks of 2^m that tile `tokens` tokens from a multiple of `tokens` on, at most.
std::int64_t blocks_of(std::int64_t tokens) {
  const auto odd =
      static_cast<std::uint64_t>(tokens) >> std::countr_zero(static_cast<std::uint64_t>(tokens));
  return odd == 1 ? 1 : 2 * (std::bit_width(odd) - 1);
}

}  // namespace

ExpertDraw::ExpertDraw(const std::vector<double>& shares, std::int64_t per_token)
    : per_token_(per_token), bounds_(shares.size() + 1, 0) {
  STEPCAST_CHECK(per_token >= 1 && per_token <= static_cast<std::int64_t>(shares.size()),
                 "{} of {} experts a token", per_token, shares.size());
  std::vector<std::uint64_t> widths;
  std::int64_t rest = per_token * static_cast<std::int64_t>(kUnit);
  for (const double share : shares) {
    widths.push_back(std::min(
        kUnit, static_cast<std::uint64_t>(std::llround(share * static_cast<double>(kUnit)))));
    rest -= static_cast<std::int64_t>(widths.back());
  }
  for (std::uint64_t& width : widths) {  // rounding, where there is room for it
    const std::int64_t change = std::clamp(rest, -static_cast<std::int64_t>(width),
                                           static_cast<std::int64_t>(kUnit - width));
    width = static_cast<std::uint64_t>(static_cast<std::int64_t>(width) + change);
    rest -= change;
  }
  STEPCAST_CHECK(rest == 0, "shares of experts do not sum to {}", per_token);
  for (std::size_t e = 0; e < widths.size(); ++e) {
    bounds_[e + 1] = bounds_[e] + widths[e];
  }
}

void ExpertDraw::experts_of(std::int64_t token, std::uint64_t phase,
                            std::span<std::int32_t> chosen) const {
  std::uint64_t at = expert_points::point_of(static_cast<std::uint64_t>(token), phase);
  for (std::int32_t& expert : chosen) {
    expert = expert_points::expert_at(bounds_.data(), static_cast<std::int32_t>(experts()), at);
    at += kUnit;
  }
}

std::int64_t ExpertDraw::count(std::int64_t first, std::int64_t tokens, std::uint64_t phase,
                               std::int64_t expert) const {
  const auto at = static_cast<std::uint64_t>(first);
  return expert_points::taken(at, at + static_cast<std::uint64_t>(tokens), phase,
                              bounds_.at(static_cast<std::size_t>(expert)),
                              bounds_.at(static_cast<std::size_t>(expert) + 1));
}

std::int64_t ExpertDraw::most(std::int64_t tokens, std::int64_t begin, std::int64_t end) const {
  if (tokens == 0) {
    return 0;
  }
  const std::uint64_t width =
      bounds_.at(static_cast<std::size_t>(end)) - bounds_.at(static_cast<std::size_t>(begin));
  const auto n = static_cast<std::uint64_t>(tokens);
  // n * width in 2^-48, in two halves.
  constexpr std::uint64_t kHalf = (std::uint64_t{1} << (kBits / 2)) - 1;
  const std::uint64_t low = n * (width & kHalf);
  const std::uint64_t high = n * (width >> (kBits / 2)) + (low >> (kBits / 2));
  const auto expected = static_cast<std::int64_t>(high >> (kBits / 2));
  const bool fraction = ((high & kHalf) | (low & kHalf)) != 0;
  const bool whole_blocks = (width << std::min(std::countr_zero(n), kBits)) % kUnit == 0;
  // Each block adds less than one copy to what is expected.
  const std::int64_t most =
      whole_blocks ? expected : expected + blocks_of(tokens) - (fraction ? 0 : 1);
  return std::min(most, tokens * std::min(end - begin, per_token_));
}

std::uint64_t expert_phase(std::int64_t step, std::int64_t layer) {
  return split_mix((static_cast<std::uint64_t>(step) << 20) + static_cast<std::uint64_t>(layer));
}

}  // namespace stepcast
