#include "runtime/cpu/kernels/internal/radix_sort.h"

#include <algorithm>
#include <array>
#include <utility>

namespace stepcast::runtime::kernels::internal {
namespace {

constexpr int kKeyShift = 32;
constexpr int kWideDigit = 11;
constexpr int kNarrowDigit = 8;
constexpr std::int64_t kManyWords = 1 << 14;

}  // namespace

std::uint64_t* radix_sort(std::uint64_t* words, std::uint64_t* scratch, std::int64_t count,
                          int key_bits) {
  // A wide digit needs fewer passes, but its 2048 counters only pay off over many words.
  const int widest = count >= kManyWords ? kWideDigit : kNarrowDigit;
  const int passes = (key_bits + widest - 1) / widest;
  const int digit_bits = passes > 0 ? (key_bits + passes - 1) / passes : 0;
  const std::uint64_t mask = (std::uint64_t{1} << digit_bits) - 1;
  std::array<std::uint32_t, std::size_t{1} << kWideDigit> position;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = kKeyShift + pass * digit_bits;
    std::fill_n(position.begin(), mask + 1, 0U);
    for (std::int64_t i = 0; i < count; ++i) {
      ++position[(words[i] >> shift) & mask];
    }
    std::uint32_t start = 0;
    for (std::uint64_t digit = 0; digit <= mask; ++digit) {
      start += std::exchange(position[digit], start);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      scratch[position[(words[i] >> shift) & mask]++] = words[i];
    }
    std::swap(words, scratch);
  }
  return words;
}

}  // namespace stepcast::runtime::kernels::internal
