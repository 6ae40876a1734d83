#pragma once
#include <cstdint>

namespace stepcast::runtime::kernels::internal {

/// Sorts `count` packed (key << 32 | payload) words by their key, stable, keys below 2^key_bits:
/// least-significant-digit radix sort over those bits only. Returns where the result lies: `words`
/// or `scratch` (both of `count`, both overwritten).
std::uint64_t* radix_sort(std::uint64_t* words, std::uint64_t* scratch, std::int64_t count,
                          int key_bits);

}  // namespace stepcast::runtime::kernels::internal
