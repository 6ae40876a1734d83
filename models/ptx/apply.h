#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "models/ptx/opcode.h"
#include "models/ptx/warp.h"

namespace stepcast::models::ptx {

/// A register's bits as a number of type T, and back: bits above T's are zero.
template <class T>
T value_of(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<double>(bits);
  } else if constexpr (std::is_same_v<T, bool>) {
    return bits != 0;
  } else {
    return static_cast<T>(bits);
  }
}
template <class T>
std::uint64_t bits_of(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? 1 : 0;
  } else {
    return static_cast<std::make_unsigned_t<T>>(value);
  }
}

/// d = F(a, ...) in each lane, where a, ... are operands 1, 2, ... of types A; undefined where one
/// of them is.
template <auto F, class R, class... A>
void apply(Warp& w, const Instruction& i, std::uint32_t mask) {
  [&]<std::size_t... N>(std::index_sequence<N...>) {
    Lanes& d = w.lanes(i.reg(0));
    const Lanes* const s[] = {&w.lanes(i.reg(static_cast<int>(N) + 1))...};
    for_lanes(mask, [&](int lane) {
      const auto l = static_cast<std::size_t>(lane);
      d[l] = bits_of<R>(static_cast<R>(F(value_of<A>((*s[N])[l])...)));
    });
    w.define(i.reg(0), mask, (w.defined(i.reg(static_cast<int>(N) + 1)) & ...));
  }
  (std::index_sequence_for<A...>{});
}

/// Whether a type of the ISA is computed with T.
template <class T>
constexpr bool computed_with(Type t) {
  switch (t) {
    case Type::kPred:
      return std::is_same_v<T, bool>;
    case Type::kB16:
    case Type::kU16:
      return std::is_same_v<T, std::uint16_t>;
    case Type::kB32:
    case Type::kU32:
      return std::is_same_v<T, std::uint32_t>;
    case Type::kB64:
    case Type::kU64:
      return std::is_same_v<T, std::uint64_t>;
    case Type::kS16:
      return std::is_same_v<T, std::int16_t>;
    case Type::kS32:
      return std::is_same_v<T, std::int32_t>;
    case Type::kS64:
      return std::is_same_v<T, std::int64_t>;
    case Type::kF32:
      return std::is_same_v<T, float>;
    case Type::kF64:
      return std::is_same_v<T, double>;
    default:
      return false;
  }
}

template <class... T>
struct Types {};
using Integers =
    Types<std::uint16_t, std::uint32_t, std::uint64_t, std::int16_t, std::int32_t, std::int64_t>;
using Floats = Types<float, double>;
using Bits = Types<std::uint16_t, std::uint32_t, std::uint64_t>;

/// The function that `make` has for the first of the types T that computes `type`.
template <class Make, class... T>
Execute for_type(Type type, Types<T...>, Make make) {
  Execute found = nullptr;
  ((found = found == nullptr && computed_with<T>(type) ? make.template operator()<T>() : found),
   ...);
  return found;
}

/// `Sources` operands of one type, a result of the same, as a Select of the table.
template <auto F, int Sources, class Among>
Execute of_one_type(Instruction& i) {
  return for_type(i.type, Among{}, []<class T>() -> Execute {
    if constexpr (Sources == 1) {
      return &apply<F, T, T>;
    } else if constexpr (Sources == 2) {
      return &apply<F, T, T, T>;
    } else {
      return &apply<F, T, T, T, T>;
    }
  });
}

}  // namespace stepcast::models::ptx
