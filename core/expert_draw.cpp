#include "core/expert_draw.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace stepcast {
namespace {

constexpr int kBits = 48;
constexpr std::uint64_t kUnit = std::uint64_t{1} << kBits;

/// The fraction 0.b0 b1 b2 ... of i = ... b2 b1 b0, in 2^-48.
std::uint64_t radical_inverse(std::uint64_t i) {
  std::uint64_t reversed = 0;
  for (int b = 0; i != 0; ++b, i >>= 1) {
    reversed |= (i & 1) << (kBits - 1 - b);
  }
  return reversed;
}

/// Points offset, offset + gap, ... below `end`; offset < gap.
std::int64_t points_below(std::uint64_t end, std::uint64_t offset, std::uint64_t gap) {
  return end <= offset ? 0 : static_cast<std::int64_t>((end - offset + gap - 1) / gap);
}

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
  std::uint64_t at = (radical_inverse(static_cast<std::uint64_t>(token)) + phase) % kUnit;
  for (std::int32_t& expert : chosen) {
    const auto next = std::upper_bound(bounds_.begin(), bounds_.end(), at);
    expert = static_cast<std::int32_t>(next - bounds_.begin()) - 1;
    at += kUnit;
  }
}

std::int64_t ExpertDraw::count(std::int64_t first, std::int64_t tokens, std::uint64_t phase,
                               std::int64_t expert) const {
  const std::uint64_t begin = bounds_.at(static_cast<std::size_t>(expert));
  const std::uint64_t end = bounds_.at(static_cast<std::size_t>(expert) + 1);
  auto at = static_cast<std::uint64_t>(first);
  const std::uint64_t last = at + static_cast<std::uint64_t>(tokens);
  std::int64_t sum = 0;
  while (at < last) {
    // The largest aligned block of 2^m from here on: its tokens lie 2^-m apart.
    const int fits = std::bit_width(last - at) - 1;
    const int m = at == 0 ? fits : std::min(fits, std::countr_zero(at));
    const std::uint64_t gap = kUnit >> m;
    const std::uint64_t offset = (radical_inverse(at) + phase) % gap;
    sum += points_below(end, offset, gap) - points_below(begin, offset, gap);
    at += std::uint64_t{1} << m;
  }
  return sum;
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
  std::uint64_t x = (static_cast<std::uint64_t>(step) << 20) + static_cast<std::uint64_t>(layer) +
                    0x9e3779b97f4a7c15ULL;  // SplitMix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace stepcast
