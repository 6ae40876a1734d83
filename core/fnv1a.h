#pragma once
#include <cstdint>
#include <string_view>

namespace stepcast {

/// FNV-1a of 64 bits (Fowler, Noll, Vo): the hash in our file formats, which may not change with a
/// version: names of plans, of lists of rows, of recorded runs, of parameters and communicators.
/// `seed`: the hash of what stands before.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t seed = 0xcbf29ce484222325ULL) {
  std::uint64_t hash = seed;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace stepcast
