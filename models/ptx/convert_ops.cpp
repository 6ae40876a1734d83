// Comparisons (PTX ISA 9.7.5) and conversions (9.7.9, cvt).
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/ptx/apply.h"
#include "models/ptx/numbers.h"

namespace stepcast::models::ptx {
namespace {

enum class Order : std::uint8_t { kLess, kEqual, kGreater, kUnordered };

struct Comparison {
  std::string_view name;
  bool less, equal, greater, unordered;
};
constexpr Comparison kComparisons[] = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},
    {"lt", true, false, false, false}, {"le", true, true, false, false},
    {"gt", false, false, true, false}, {"ge", false, true, true, false},
    {"lo", true, false, false, false}, {"ls", true, true, false, false},
    {"hi", false, false, true, false}, {"hs", false, true, true, false},
    {"equ", false, true, false, true}, {"neu", true, false, true, true},
    {"ltu", true, false, false, true}, {"leu", true, true, false, true},
    {"gtu", false, false, true, true}, {"geu", false, true, true, true},
    {"num", true, true, true, false},  {"nan", false, false, false, true}};

template <class T>
Order order(T a, T b) {
  return a < b    ? Order::kLess
         : a == b ? Order::kEqual
         : a > b  ? Order::kGreater
                  : Order::kUnordered;
}

/// p[|q] = a cmp b [boolop {!}c]; q with the comparison negated.
template <class T>
void compare(Warp& w, const Instruction& i, std::uint32_t mask) {
  const Comparison& how = kComparisons[i.detail];
  const Lanes a = w.lanes(i.reg(1)), b = w.lanes(i.reg(2));
  const bool joins = i.operands > 3;
  std::uint32_t defined = w.defined(i.reg(1)) & w.defined(i.reg(2));
  defined &= joins ? w.defined(i.reg(3)) : kAllLanes;
  const bool all = i.has("and"), differ = i.has("xor");
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    const Order o = order(value_of<T>(a[l]), value_of<T>(b[l]));
    const bool yes = o == Order::kLess      ? how.less
                     : o == Order::kEqual   ? how.equal
                     : o == Order::kGreater ? how.greater
                                            : how.unordered;
    const bool with = joins && (w.lanes(i.reg(3))[l] != 0) != i.negated;
    const auto joined = [&](bool p) {
      return !joins ? p : all ? p && with : differ ? p != with : p || with;
    };
    w.lanes(i.reg(0))[l] = joined(yes) ? 1 : 0;
    if (i.parts(0) > 1) {
      w.lanes(i.reg(0, 1))[l] = joined(!yes) ? 1 : 0;
    }
  });
  for (int p = 0; p < i.parts(0); ++p) {
    w.define(i.reg(0, p), mask, defined);
  }
}

Execute comparison(Instruction& i) {
  const auto* const how = std::find_if(
      std::begin(kComparisons), std::end(kComparisons),
      [&i](const Comparison& c) { return !i.modifiers.empty() && c.name == i.modifiers.front(); });
  if (how == std::end(kComparisons)) {
    return nullptr;
  }
  i.detail = static_cast<std::uint8_t>(how - std::begin(kComparisons));
  const auto make = []<class T>() -> Execute { return &compare<T>; };
  const Execute integer = for_type(i.type, Integers{}, make);
  return integer != nullptr ? integer : for_type(i.type, Floats{}, make);
}

/// A number of any type in transit: floats exactly in double, integers as they are.
struct Number {
  bool real = false;
  double value = 0;
  __int128 integer = 0;
};

Number read(Type type, std::uint64_t bits) {
  switch (type) {
    case Type::kF16:
      return {true, from_small(kHalf, static_cast<std::uint32_t>(bits & 0xffff))};
    case Type::kBf16:
      return {true, from_small(kBfloat16, static_cast<std::uint32_t>(bits & 0xffff))};
    case Type::kF32:
      return {true, value_of<float>(bits)};
    case Type::kF64:
      return {true, value_of<double>(bits)};
    default: {
      const int unused = 64 - 8 * bytes_of(type);
      const std::uint64_t high = bits << unused;
      return {false, 0,
              is_signed(type) ? __int128{static_cast<std::int64_t>(high) >> unused}
                              : __int128{high >> unused}};
    }
  }
}

double rounded(const Instruction& i, double x) {
  return i.has("rzi")   ? std::trunc(x)
         : i.has("rmi") ? std::floor(x)
         : i.has("rpi") ? std::ceil(x)
         : i.has("rni") ? std::nearbyint(x)
                        : x;
}

/// An integer of a type: clamped from floats, and with .sat; else cut off.
std::uint64_t to_integer(const Instruction& i, const Number& n) {
  const int width = 8 * bytes_of(i.type);
  const __int128 low = is_signed(i.type) ? -(__int128{1} << (width - 1)) : 0;
  const __int128 high = (__int128{1} << (is_signed(i.type) ? width - 1 : width)) - 1;
  __int128 value = n.integer;
  if (n.real) {
    const double whole = rounded(i, n.value);
    value = std::isnan(whole)                    ? 0
            : whole <= static_cast<double>(low)  ? low
            : whole >= static_cast<double>(high) ? high
                                                 : static_cast<__int128>(whole);
  } else if (i.has("sat")) {
    value = std::clamp(value, low, high);
  }
  return static_cast<std::uint64_t>(value) & (~std::uint64_t{0} >> (64 - width));
}

double real(const Number& n) { return n.real ? n.value : static_cast<double>(n.integer); }

std::uint64_t write(const Instruction& i, const Number& n) {
  switch (i.type) {
    case Type::kF16:
      return to_small(kHalf, real(n));
    case Type::kBf16:
      return to_small(kBfloat16, real(n));
    case Type::kF32: {
      const float x =
          n.real ? static_cast<float>(rounded(i, n.value)) : static_cast<float>(n.integer);
      return bits_of(i.has("sat") ? (x > 0 ? std::min(x, 1.0F) : 0.0F) : x);
    }
    case Type::kF64:
      return bits_of(rounded(i, real(n)));
    default:
      return to_integer(i, n);
  }
}

/// Integers of a signed type narrower than the register fill it with their sign.
std::uint64_t widened(Type type, std::uint64_t bits, Type of_register) {
  if (!is_signed(type) || bytes_of(of_register) <= bytes_of(type)) {
    return bits;
  }
  const int unused = 64 - 8 * bytes_of(type);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << unused) >> unused) &
         (~std::uint64_t{0} >> (64 - 8 * bytes_of(of_register)));
}

void convert(Warp& w, const Instruction& i, std::uint32_t mask) {
  const Lanes& s = w.lanes(i.reg(1));
  Lanes& d = w.lanes(i.reg(0));
  const Type held = w.block().kernel.registers[static_cast<std::size_t>(i.reg(0))];
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    d[l] = widened(i.type, write(i, read(i.from, s[l])), held);
  });
  w.define(i.reg(0), mask, w.defined(i.reg(1)));
}

/// Two fp32 numbers into one register, the first in the upper half.
void convert_two(Warp& w, const Instruction& i, std::uint32_t mask) {
  const SmallFloat format = i.type == Type::kF16x2    ? kHalf
                            : i.type == Type::kBf16x2 ? kBfloat16
                            : i.type == Type::kE4m3x2 ? kE4m3
                                                      : kE5m2;
  const int width = 1 + format.exponent_bits + format.mantissa_bits;
  const bool saturate = i.has("satfinite");
  Lanes& d = w.lanes(i.reg(0));
  const Lanes &high = w.lanes(i.reg(1)), &low = w.lanes(i.reg(2));
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    const std::uint64_t upper = to_small(format, value_of<float>(high[l]), saturate);
    d[l] = upper << width | to_small(format, value_of<float>(low[l]), saturate);
  });
  w.define(i.reg(0), mask, w.defined(i.reg(1)) & w.defined(i.reg(2)));
}

/// Integers without .sat: truncated, or filled with the sign of the source.
Execute between_integers(Instruction& i) {
  using Wide = Types<std::uint32_t, std::uint64_t, std::int32_t, std::int64_t>;
  return for_type(i.type, Wide{}, [&i]<class To>() -> Execute {
    return for_type(i.from, Integers{}, []<class From>() -> Execute {
      constexpr auto kCast = [](From x) { return static_cast<To>(x); };
      return &apply<kCast, To, From>;
    });
  });
}

Execute conversion(Instruction& i) {
  const bool packed = i.type == Type::kF16x2 || i.type == Type::kBf16x2 ||
                      i.type == Type::kE4m3x2 || i.type == Type::kE5m2x2;
  if (packed) {
    return i.operands == 3 && i.from == Type::kF32 ? &convert_two : nullptr;
  }
  const Execute simple = i.has("sat") ? nullptr : between_integers(i);
  return simple != nullptr ? simple : i.operands == 2 ? &convert : nullptr;
}

constexpr Opcode kTable[] = {
    {"setp", Flow::kNext, 3, 4,
     "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor", comparison},
    {"cvt", Flow::kNext, 2, 3, "rn rni rzi rmi rpi sat satfinite", conversion},
};

}  // namespace

const Opcode* find_conversion(std::string_view name) { return find_in(kTable, name); }

}  // namespace stepcast::models::ptx
