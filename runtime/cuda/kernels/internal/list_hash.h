#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// Term that one id adds to the hash of its list: sums do not depend on who adds first, so lanes
/// share a list; ids in another order give another sum. A permutation of 64 bits by SplitMix64's
/// finaliser (Steele, Lea, Flood, OOPSLA 2014).
STEPCAST_HOST_DEVICE inline std::uint64_t list_hash_term(std::int64_t id, std::int64_t place) {
  std::uint64_t x = static_cast<std::uint64_t>(id) * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(place + 1) * 0xd1342543de82ef95ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

/// Key by which lists are sorted; those of unlike lists may be equal.
STEPCAST_HOST_DEVICE inline std::uint32_t list_key(std::uint64_t sum_of_terms) {
  return static_cast<std::uint32_t>(sum_of_terms >> 32U);
}

}  // namespace stepcast::runtime::cuda::kernels::internal
