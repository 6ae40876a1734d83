#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace stepcast::models::ptx {

/// Fundamental types of the PTX ISA (section 5.2) and the packed ones that cvt makes.
enum class Type : std::uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kF16x2,
  kBf16x2,
  kE4m3x2,
  kE5m2x2,
  kF32,
  kF64
};

/// State spaces (section 5.1). Addresses of shared, local and parameter memory count from 0 in
/// their space; in the generic space each has a window of its own.
enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam };

constexpr int bytes_of(Type t) {
  switch (t) {
    case Type::kPred:
    case Type::kB8:
    case Type::kU8:
    case Type::kS8:
      return 1;
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
    case Type::kF16:
    case Type::kBf16:
    case Type::kE4m3x2:
    case Type::kE5m2x2:
      return 2;
    case Type::kB64:
    case Type::kU64:
    case Type::kS64:
    case Type::kF64:
      return 8;
    default:
      return 4;
  }
}
constexpr bool is_signed(Type t) { return t >= Type::kS8 && t <= Type::kS64; }

/// "u32" or ".u32"; nullopt for other words.
std::optional<Type> type_named(std::string_view word);
std::optional<Space> space_named(std::string_view word);

}  // namespace stepcast::models::ptx
