// Integer arithmetic, logic, comparison and data movement (PTX ISA 9.7.1, 9.7.6 to 9.7.9).
#include <algorithm>
#include <cmath>

#include "models/ptx/apply.h"

namespace stepcast::models::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Wrap around, whatever the sign.
constexpr auto kAdd = []<class T>(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
};
constexpr auto kSubtract = []<class T>(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
};
constexpr auto kMultiplyLow = []<class T>(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
};
constexpr auto kMultiplyHigh = []<class T>(T a, T b) {
  using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
  return static_cast<T>((static_cast<Wide>(a) * static_cast<Wide>(b)) >> (8 * sizeof(T)));
};
constexpr auto kMaddLow = []<class T>(T a, T b, T c) { return kAdd(kMultiplyLow(a, b), c); };
// Unspecified where the divisor is zero: all ones, as devices give.
constexpr auto kDivide = []<class T>(T a, T b) {
  if (b == 0) {
    return static_cast<T>(-1);
  }
  if constexpr (std::is_signed_v<T>) {
    return b == -1 ? kSubtract(T{0}, a) : static_cast<T>(a / b);
  } else {
    return static_cast<T>(a / b);
  }
};
constexpr auto kRemainder = []<class T>(T a, T b) {
  return b == 0 ? a : kSubtract(a, kMultiplyLow(kDivide(a, b), b));
};
constexpr auto kNegate = []<class T>(T a) { return kSubtract(T{0}, a); };
constexpr auto kAbsolute = []<class T>(T a) { return a < 0 ? kNegate(a) : a; };
constexpr auto kMinimum = []<class T>(T a, T b) { return std::min(a, b); };
constexpr auto kMaximum = []<class T>(T a, T b) { return std::max(a, b); };
constexpr auto kAnd = []<class T>(T a, T b) { return static_cast<T>(a & b); };
constexpr auto kOr = []<class T>(T a, T b) { return static_cast<T>(a | b); };
constexpr auto kXor = []<class T>(T a, T b) { return static_cast<T>(a ^ b); };
constexpr auto kNot = []<class T>(T a) {
  if constexpr (std::is_same_v<T, bool>) {
    return !a;
  } else {
    return static_cast<T>(~a);
  }
};
constexpr auto kShiftLeft = []<class T>(T a, std::uint32_t n) {
  return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<std::uint64_t>(a) << n);
};
constexpr auto kShiftRight = []<class T>(T a, std::uint32_t n) {
  const std::uint32_t most = 8 * sizeof(T) - 1;
  return n > most ? static_cast<T>(a < 0 ? -1 : 0) : static_cast<T>(a >> n);
};
constexpr auto kPopulation = []<class T>(T a) { return std::popcount(a); };
constexpr auto kLeadingZeros = []<class T>(T a) { return std::countl_zero(a); };
constexpr auto kReverse = []<class T>(T a) {
  T r = 0;
  for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit) {
    r = static_cast<T>(r << 1 | (a >> bit & 1));
  }
  return r;
};
constexpr auto kExtract = []<class T>(T a, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t width = 8 * sizeof(T);
  first &= 0xff;
  count &= 0xff;
  const auto u = static_cast<Unsigned<T>>(a);
  const std::uint32_t top = std::min(first + count, width) - 1;
  const bool fill = std::is_signed_v<T> && count > 0 && (u >> top & 1) != 0;
  const Unsigned<T> low = first >= width ? 0 : static_cast<Unsigned<T>>(u >> first);
  if (count >= width) {
    return fill && first > 0 ? static_cast<T>(low | ~(static_cast<Unsigned<T>>(-1) >> first))
                             : static_cast<T>(low);
  }
  const auto field = static_cast<Unsigned<T>>((Unsigned<T>{1} << count) - 1);
  return static_cast<T>(fill ? low | ~field : low & field);
};
constexpr auto kInsert = []<class T>(T a, T b, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t width = 8 * sizeof(T);
  first &= 0xff;
  count &= 0xff;
  T field = 0;
  for (std::uint32_t bit = first; bit < std::min(first + count, width); ++bit) {
    field |= T{1} << bit;
  }
  return static_cast<T>((b & ~field) | (first < width ? a << first & field : 0));
};
constexpr auto kMask = [](std::uint32_t first, std::uint32_t count) {
  if (first >= 32 || count == 0) {
    return std::uint32_t{0};
  }
  const std::uint32_t ones = count >= 32 ? kAllLanes : (1U << count) - 1;
  return ones << first;
};
constexpr auto kMaskWrap = [](std::uint32_t first, std::uint32_t count) {
  return kMask(first & 31, count & 31);
};
constexpr auto kPermute = [](std::uint32_t a, std::uint32_t b, std::uint32_t how) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  std::uint32_t r = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const std::uint32_t which = how >> (4 * byte) & 0xf;
    auto v = static_cast<std::uint8_t>(both >> (8 * (which & 7)));
    v = (which & 8) != 0 ? static_cast<std::uint8_t>((v & 0x80) != 0 ? 0xff : 0) : v;
    r |= static_cast<std::uint32_t>(v) << (8 * byte);
  }
  return r;
};
constexpr auto kTable = [](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t r = 0;
  for (std::uint32_t row = 0; row < 8; ++row) {
    if ((table >> row & 1) != 0) {
      r |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
    }
  }
  return r;
};
constexpr auto kFunnelLeft = [](std::uint32_t low, std::uint32_t high, std::uint32_t n) {
  n = std::min(n, 32U);
  return static_cast<std::uint32_t>(((std::uint64_t{high} << 32 | low) << n) >> 32);
};
constexpr auto kFunnelRight = [](std::uint32_t low, std::uint32_t high, std::uint32_t n) {
  n = std::min(n, 32U);
  return static_cast<std::uint32_t>((std::uint64_t{high} << 32 | low) >> n);
};
constexpr auto kFunnelLeftWrap = [](std::uint32_t low, std::uint32_t high, std::uint32_t n) {
  return kFunnelLeft(low, high, n & 31);
};
constexpr auto kFunnelRightWrap = [](std::uint32_t low, std::uint32_t high, std::uint32_t n) {
  return kFunnelRight(low, high, n & 31);
};

/// mul and mad: .lo, .hi, .wide.
template <bool Add>
Execute multiply(Instruction& i) {
  if (i.has("wide")) {
    const auto of = [&]<class From, class To>() -> Execute {
      constexpr auto kWide = [](From a, From b) { return static_cast<To>(To{a} * To{b}); };
      constexpr auto kWideAdd = [](From a, From b, To c) {
        return kAdd(static_cast<To>(To{a} * To{b}), c);
      };
      if constexpr (Add) {
        return &apply<kWideAdd, To, From, From, To>;
      } else {
        return &apply<kWide, To, From, From>;
      }
    };
    switch (i.type) {
      case Type::kU16:
        return of.template operator()<std::uint16_t, std::uint32_t>();
      case Type::kS16:
        return of.template operator()<std::int16_t, std::int32_t>();
      case Type::kU32:
        return of.template operator()<std::uint32_t, std::uint64_t>();
      case Type::kS32:
        return of.template operator()<std::int32_t, std::int64_t>();
      default:
        return nullptr;
    }
  }
  if constexpr (Add) {
    return i.has("lo") ? of_one_type<kMaddLow, 3, Integers>(i) : nullptr;
  } else {
    return i.has("lo")   ? of_one_type<kMultiplyLow, 2, Integers>(i)
           : i.has("hi") ? of_one_type<kMultiplyHigh, 2, Integers>(i)
                         : nullptr;
  }
}

template <auto F>
Execute shift(Instruction& i) {
  return for_type(i.type, Integers{},
                  []<class T>() -> Execute { return &apply<F, T, T, std::uint32_t>; });
}
template <auto F>
Execute count_bits(Instruction& i) {
  return for_type(i.type, Types<std::uint32_t, std::uint64_t>{},
                  []<class T>() -> Execute { return &apply<F, std::uint32_t, T>; });
}
template <auto F>
Execute logic(Instruction& i) {
  return of_one_type<F, 2, Types<bool, std::uint16_t, std::uint32_t, std::uint64_t>>(i);
}
Execute invert(Instruction& i) {
  return of_one_type<kNot, 1, Types<bool, std::uint16_t, std::uint32_t, std::uint64_t>>(i);
}
Execute extract(Instruction& i) {
  return for_type(i.type, Integers{}, []<class T>() -> Execute {
    return &apply<kExtract, T, T, std::uint32_t, std::uint32_t>;
  });
}
Execute insert(Instruction& i) {
  return for_type(i.type, Bits{}, []<class T>() -> Execute {
    return &apply<kInsert, T, T, T, std::uint32_t, std::uint32_t>;
  });
}
using Word = std::uint32_t;
Execute bit_mask(Instruction& i) {
  return i.has("wrap") ? &apply<kMaskWrap, Word, Word, Word> : &apply<kMask, Word, Word, Word>;
}
Execute permute(Instruction&) { return &apply<kPermute, Word, Word, Word, Word>; }
Execute table(Instruction&) { return &apply<kTable, Word, Word, Word, Word, Word>; }
Execute funnel(Instruction& i) {
  const bool wrap = i.has("wrap");
  if (i.has("l")) {
    return wrap ? &apply<kFunnelLeftWrap, Word, Word, Word, Word>
                : &apply<kFunnelLeft, Word, Word, Word, Word>;
  }
  return wrap ? &apply<kFunnelRightWrap, Word, Word, Word, Word>
              : &apply<kFunnelRight, Word, Word, Word, Word>;
}

/// mov, whole or between a register and a vector of parts, low first.
void move_whole(Warp& w, const Instruction& i, std::uint32_t mask) {
  const std::uint64_t keep =
      i.type == Type::kPred ? 1 : ~std::uint64_t{0} >> (64 - 8 * bytes_of(i.type));
  Lanes& d = w.lanes(i.reg(0));
  const Lanes& s = w.lanes(i.reg(1));
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    d[l] = s[l] & keep;
  });
  w.define(i.reg(0), mask, w.defined(i.reg(1)));
}
void move_pack(Warp& w, const Instruction& i, std::uint32_t mask) {
  const int parts = i.parts(1);
  const int width = 8 * bytes_of(i.type) / parts;
  std::uint32_t defined = kAllLanes;
  Lanes packed{};
  for (int p = 0; p < parts; ++p) {
    const Lanes& s = w.lanes(i.reg(1, p));
    defined &= w.defined(i.reg(1, p));
    for (std::size_t l = 0; l < kLanes; ++l) {
      packed[l] |= (s[l] & (~std::uint64_t{0} >> (64 - width))) << (p * width);
    }
  }
  Lanes& d = w.lanes(i.reg(0));
  for_lanes(mask, [&](int lane) {
    d[static_cast<std::size_t>(lane)] = packed[static_cast<std::size_t>(lane)];
  });
  w.define(i.reg(0), mask, defined);
}
void move_unpack(Warp& w, const Instruction& i, std::uint32_t mask) {
  const int parts = i.parts(0);
  const int width = 8 * bytes_of(i.type) / parts;
  const Lanes s = w.lanes(i.reg(1));
  const std::uint32_t defined = w.defined(i.reg(1));
  for (int p = 0; p < parts; ++p) {
    Lanes& d = w.lanes(i.reg(0, p));
    for_lanes(mask, [&](int lane) {
      const auto l = static_cast<std::size_t>(lane);
      d[l] = s[l] >> (p * width) & (~std::uint64_t{0} >> (64 - width));
    });
    w.define(i.reg(0, p), mask, defined);
  }
}
Execute move(Instruction& i) {
  return i.parts(0) > 1 ? &move_unpack : i.parts(1) > 1 ? &move_pack : &move_whole;
}

/// cvta: an address of another space as a generic one, or back.
template <bool Back>
void change_space(Warp& w, const Instruction& i, std::uint32_t mask) {
  const std::uint64_t window = i.space == Space::kShared  ? kSharedWindow
                               : i.space == Space::kLocal ? kLocalWindow
                               : i.space == Space::kParam ? kParameterWindow
                                                          : 0;
  const Lanes& s = w.lanes(i.reg(1));
  Lanes& d = w.lanes(i.reg(0));
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    d[l] = Back ? s[l] - window : s[l] + window;
  });
  w.define(i.reg(0), mask, w.defined(i.reg(1)));
}
Execute convert_address(Instruction& i) {
  return i.has("to") ? &change_space<true> : &change_space<false>;
}

/// d = c ? a : b, defined where c and the one chosen are.
void select(Warp& w, const Instruction& i, std::uint32_t mask) {
  const Lanes a = w.lanes(i.reg(1)), b = w.lanes(i.reg(2));
  const Lanes& c = w.lanes(i.reg(3));
  const std::uint64_t keep = ~std::uint64_t{0} >> (64 - 8 * bytes_of(i.type));
  std::uint32_t first = 0;
  Lanes& d = w.lanes(i.reg(0));
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    const bool yes = c[l] != 0;
    first |= static_cast<std::uint32_t>(yes) << lane;
    d[l] = (yes ? a[l] : b[l]) & keep;
  });
  w.define(i.reg(0), mask,
           w.defined(i.reg(3)) & ((first & w.defined(i.reg(1))) | (~first & w.defined(i.reg(2)))));
}
Execute select_one(Instruction&) { return &select; }

constexpr Opcode kTableOfIntegers[] = {
    {"mov", Flow::kNext, 2, 2, "", move},
    {"cvta", Flow::kNext, 2, 2, "to", convert_address},
    {"selp", Flow::kNext, 4, 4, "", select_one},
    {"add", Flow::kNext, 3, 3, "", of_one_type<kAdd, 2, Integers>},
    {"sub", Flow::kNext, 3, 3, "", of_one_type<kSubtract, 2, Integers>},
    {"mul", Flow::kNext, 3, 3, "lo hi wide", multiply<false>},
    {"mad", Flow::kNext, 4, 4, "lo wide", multiply<true>},
    {"div", Flow::kNext, 3, 3, "", of_one_type<kDivide, 2, Integers>},
    {"rem", Flow::kNext, 3, 3, "", of_one_type<kRemainder, 2, Integers>},
    {"neg", Flow::kNext, 2, 2, "", of_one_type<kNegate, 1, Integers>},
    {"abs", Flow::kNext, 2, 2, "", of_one_type<kAbsolute, 1, Integers>},
    {"min", Flow::kNext, 3, 3, "", of_one_type<kMinimum, 2, Integers>},
    {"max", Flow::kNext, 3, 3, "", of_one_type<kMaximum, 2, Integers>},
    {"and", Flow::kNext, 3, 3, "", logic<kAnd>},
    {"or", Flow::kNext, 3, 3, "", logic<kOr>},
    {"xor", Flow::kNext, 3, 3, "", logic<kXor>},
    {"not", Flow::kNext, 2, 2, "", invert},
    {"shl", Flow::kNext, 3, 3, "", shift<kShiftLeft>},
    {"shr", Flow::kNext, 3, 3, "", shift<kShiftRight>},
    {"popc", Flow::kNext, 2, 2, "", count_bits<kPopulation>},
    {"clz", Flow::kNext, 2, 2, "", count_bits<kLeadingZeros>},
    {"brev", Flow::kNext, 2, 2, "", of_one_type<kReverse, 1, Types<std::uint32_t, std::uint64_t>>},
    {"bfe", Flow::kNext, 4, 4, "", extract},
    {"bfi", Flow::kNext, 5, 5, "", insert},
    {"bmsk", Flow::kNext, 3, 3, "clamp wrap", bit_mask},
    {"prmt", Flow::kNext, 4, 4, "", permute},
    {"lop3", Flow::kNext, 5, 5, "", table},
    {"shf", Flow::kNext, 4, 4, "l r clamp wrap", funnel},
};

}  // namespace

const Opcode* find_arithmetic(std::string_view name) { return find_in(kTableOfIntegers, name); }

}  // namespace stepcast::models::ptx
