// Loads, stores, atomics and asynchronous copies (PTX ISA 9.7.9, 9.7.13).
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "models/ptx/apply.h"
#include "models/ptx/warp_memory.h"

namespace stepcast::models::ptx {
namespace {

std::uint64_t extended(Type type, std::uint64_t bits, Type held) {
  if (!is_signed(type) || bytes_of(held) <= bytes_of(type)) {
    return bits;
  }
  const int unused = 64 - 8 * bytes_of(type);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(bits << unused) >> unused) &
         (~std::uint64_t{0} >> (64 - 8 * bytes_of(held)));
}

void load(Warp& w, const Instruction& i, std::uint32_t mask) {
  const int bytes = bytes_of(i.type);
  const Access access = resolve(w, i, 1, mask, bytes * i.lanes_of_vector, false);
  for (int p = 0; p < i.lanes_of_vector; ++p) {
    const Type held = w.block().kernel.registers[static_cast<std::size_t>(i.reg(0, p))];
    Lanes& d = w.lanes(i.reg(0, p));
    std::uint32_t defined = 0;
    for_lanes(mask, [&](int lane) {
      const auto l = static_cast<std::size_t>(lane);
      std::uint64_t bits = 0;
      const bool whole =
          read_bytes(w, access, lane, p * bytes, &bits, static_cast<std::size_t>(bytes));
      defined |= static_cast<std::uint32_t>(whole) << lane;
      d[l] = extended(i.type, bits, held);
    });
    w.define(i.reg(0, p), mask, defined);
  }
}

void store(Warp& w, const Instruction& i, std::uint32_t mask) {
  const int bytes = bytes_of(i.type);
  const Access access = resolve(w, i, 0, mask, bytes * i.lanes_of_vector, true);
  for (int p = 0; p < i.lanes_of_vector; ++p) {
    const int from = i.reg(1, p);
    w.require_defined(i, from, mask & access.global, "is stored to global memory");
    const Lanes& s = w.lanes(from);
    for_lanes(mask, [&](int lane) {
      write_bytes(w, access, lane, p * bytes, &s[static_cast<std::size_t>(lane)],
                  static_cast<std::size_t>(bytes), (w.defined(from) >> lane & 1U) != 0);
    });
  }
}

Execute load_form(Instruction& i) { return i.parts(0) == i.lanes_of_vector ? &load : nullptr; }
Execute store_form(Instruction& i) { return i.parts(1) == i.lanes_of_vector ? &store : nullptr; }

constexpr auto kAdd = []<class T>(T old, T x, T) {
  if constexpr (std::is_floating_point_v<T>) {
    return old + x;
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(old) + static_cast<std::uint64_t>(x));
  }
};
constexpr auto kMinimum = []<class T>(T old, T x, T) { return std::min(old, x); };
constexpr auto kMaximum = []<class T>(T old, T x, T) { return std::max(old, x); };
constexpr auto kAnd = []<class T>(T old, T x, T) { return static_cast<T>(old & x); };
constexpr auto kOr = []<class T>(T old, T x, T) { return static_cast<T>(old | x); };
constexpr auto kXor = []<class T>(T old, T x, T) { return static_cast<T>(old ^ x); };
constexpr auto kExchange = []<class T>(T, T x, T) { return x; };
constexpr auto kSwapIfEqual = []<class T>(T old, T expected, T x) {
  return old == expected ? x : old;
};

/// Lanes in turn. `First`: the operand of the address; 0 where nothing is returned (red).
template <auto F, class T, int First>
void atomic(Warp& w, const Instruction& i, std::uint32_t mask) {
  const Access access = resolve(w, i, First, mask, static_cast<int>(sizeof(T)), true);
  const int a = i.reg(First + 1);
  const int b = i.operands > First + 2 ? i.reg(First + 2) : a;
  w.require_defined(i, a, mask, "is an operand of an atomic");
  w.require_defined(i, b, mask, "is an operand of an atomic");
  w.block().counts.atomics += static_cast<unsigned>(__builtin_popcount(mask & access.global));
  std::uint32_t defined = 0;
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    std::uint64_t bits = 0;
    const bool whole = read_bytes(w, access, lane, 0, &bits, sizeof(T));
    if (!whole) {
      w.fail(i, lane, "an atomic changes undefined memory");
    }
    const std::uint64_t result = bits_of<T>(static_cast<T>(
        F(value_of<T>(bits), value_of<T>(w.lanes(a)[l]), value_of<T>(w.lanes(b)[l]))));
    write_bytes(w, access, lane, 0, &result, sizeof(T), true);
    if constexpr (First == 1) {
      w.lanes(i.reg(0))[l] = bits;
    }
    defined |= 1U << lane;
  });
  if constexpr (First == 1) {
    w.define(i.reg(0), mask, defined);
  }
}

template <int First>
Execute atomic_form(Instruction& i) {
  using Words = Types<std::uint32_t, std::uint64_t, std::int32_t, std::int64_t>;
  const auto of = [&i]<auto F>(auto among) {
    return for_type(i.type, among, []<class T>() -> Execute { return &atomic<F, T, First>; });
  };
  if (i.has("add")) {
    const Execute whole = of.template operator()<kAdd>(Words{});
    return whole != nullptr ? whole : of.template operator()<kAdd>(Floats{});
  }
  return i.has("min")    ? of.template operator()<kMinimum>(Words{})
         : i.has("max")  ? of.template operator()<kMaximum>(Words{})
         : i.has("and")  ? of.template operator()<kAnd>(Words{})
         : i.has("or")   ? of.template operator()<kOr>(Words{})
         : i.has("xor")  ? of.template operator()<kXor>(Words{})
         : i.has("exch") ? of.template operator()<kExchange>(Words{})
         : i.has("cas")  ? of.template operator()<kSwapIfEqual>(Words{})
                         : nullptr;
}

/// cp.async: bytes on their way arrive when they are waited for; until then their place is
/// undefined.
void copy_later(Warp& w, const Instruction& i, std::uint32_t mask) {
  const auto bytes = static_cast<std::uint32_t>(w.lanes(i.reg(2))[0]);
  const bool partial = i.operands > 3;
  if (partial) {
    w.require_defined(i, i.reg(3), mask, "says how much is copied");
  }
  std::uint32_t reads = 0;
  for_lanes(mask, [&](int lane) {
    const bool some = !partial || w.lanes(i.reg(3))[static_cast<std::size_t>(lane)] != 0;
    reads |= static_cast<std::uint32_t>(some) << lane;
  });
  const Access to = resolve_in(w, i, 0, mask, static_cast<int>(bytes), true, Space::kShared);
  const Access from =
      reads == 0 ? Access{}
                 : resolve_in(w, i, 1, reads, static_cast<int>(bytes), false, Space::kGlobal);
  for_lanes(mask, [&](int lane) {
    const auto l = static_cast<std::size_t>(lane);
    const auto valid = partial ? static_cast<std::uint32_t>(w.lanes(i.reg(3))[l]) : bytes;
    w.copies(lane).open.push_back({to.address[l], from.address[l], bytes, valid});
    const std::uint64_t nothing[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    w.block().shared.store(to.address[l], nothing, bytes, false);
  });
}

void arrive(Warp& w, const std::vector<Warp::Copy>& copies) {
  for (const Warp::Copy& c : copies) {
    std::byte data[16] = {};
    if (c.valid > 0) {
      std::memcpy(data, reinterpret_cast<const void*>(c.from), std::min(c.valid, c.bytes));
    }
    w.block().shared.store(c.to, data, c.bytes);
  }
}

void commit(Warp& w, const Instruction&, std::uint32_t mask) {
  for_lanes(mask, [&](int lane) {
    Warp::Copies& c = w.copies(lane);
    c.groups.push_back(std::exchange(c.open, {}));
  });
}

void wait_for(Warp& w, std::uint32_t mask, std::size_t pending) {
  for_lanes(mask, [&](int lane) {
    auto& groups = w.copies(lane).groups;
    for (; groups.size() > pending; groups.pop_front()) {
      arrive(w, groups.front());
    }
  });
}
void wait_for_groups(Warp& w, const Instruction& i, std::uint32_t mask) {
  wait_for(w, mask, w.lanes(i.reg(0))[0]);
}
void wait_for_all(Warp& w, const Instruction& i, std::uint32_t mask) {
  commit(w, i, mask);
  wait_for(w, mask, 0);
}

/// `cp.async` and its group commands are one opcode with different operands.
Execute copy_form(Instruction& i) {
  if (!i.has("async")) {
    return nullptr;
  }
  if (i.has("commit_group")) {
    return i.operands == 0 ? &commit : nullptr;
  }
  if (i.has("wait_all")) {
    return i.operands == 0 ? &wait_for_all : nullptr;
  }
  if (i.has("wait_group")) {
    return i.operands == 1 ? &wait_for_groups : nullptr;
  }
  return i.operands >= 3 && (i.has("cg") || i.has("ca")) ? &copy_later : nullptr;
}

constexpr Opcode kTable[] = {
    {"ld", Flow::kNext, 2, 2,
     "nc ca cg cs lu cv volatile relaxed acquire weak gpu cta sys L1::no_allocate L1::evict_last "
     "L1::evict_first L2::64B L2::128B L2::256B",
     load_form},
    {"st", Flow::kNext, 2, 2,
     "wb cg cs wt volatile relaxed release weak gpu cta sys L1::no_allocate L1::evict_last "
     "L1::evict_first",
     store_form},
    {"atom", Flow::kNext, 3, 4,
     "relaxed acquire release acq_rel gpu cta sys add min max and or xor exch cas", atomic_form<1>},
    {"red", Flow::kNext, 2, 2, "relaxed release gpu cta sys add min max and or xor",
     atomic_form<0>},
    {"cp", Flow::kNext, 0, 4, "async cg ca commit_group wait_group wait_all L2::128B", copy_form},
};

}  // namespace

const Opcode* find_memory(std::string_view name) { return find_in(kTable, name); }

}  // namespace stepcast::models::ptx
