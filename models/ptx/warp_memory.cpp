#include "models/ptx/warp_memory.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace stepcast::models::ptx {
namespace {

void count_global(Warp& w, const Access& a, int bytes, bool writes) {
  Traffic& t = writes ? w.block().counts.stores : w.block().counts.loads;
  ++t.requests;
  t.bytes += static_cast<unsigned>(__builtin_popcount(a.global)) * static_cast<unsigned>(bytes);
  std::array<std::uint64_t, kLanes> sectors;  // a lane's access lies in one: it is aligned
  std::size_t count = 0;
  for_lanes(a.global, [&](int lane) {
    const std::uint64_t address = a.address[static_cast<std::size_t>(lane)];
    const std::uint64_t sector = address / kSector;
    if (count == 0 || sectors[count - 1] != sector) {
      sectors[count++] = sector;
      if (w.block().footprint.find(address, 1) != nullptr) {  // not a variable of the module
        w.block().footprint.touch(sector, writes);
      }
    }
  });
  std::sort(sectors.begin(), sectors.begin() + static_cast<std::ptrdiff_t>(count));
  t.sectors += static_cast<std::uint64_t>(
      std::unique(sectors.begin(), sectors.begin() + static_cast<std::ptrdiff_t>(count)) -
      sectors.begin());
}

void count_shared(Warp& w, const Access& a, int bytes) {
  Counts& c = w.block().counts;
  const Passes passes = bank_passes(a.address, a.shared, bytes);
  ++c.shared_requests;
  c.shared_passes += static_cast<unsigned>(passes.needed);
  c.shared_conflicts += static_cast<unsigned>(passes.needed - passes.least);
  c.shared_bytes +=
      static_cast<unsigned>(__builtin_popcount(a.shared)) * static_cast<unsigned>(bytes);
}

/// Adds a lane to its space, whose own address it gets.
void place(Access& a, int lane, std::uint64_t address, Space space) {
  const std::uint32_t bit = 1U << lane;
  if (space == Space::kGeneric) {
    const std::uint64_t window = address & ~(kWindow - 1);
    space = window == kSharedWindow      ? Space::kShared
            : window == kLocalWindow     ? Space::kLocal
            : window == kParameterWindow ? Space::kParam
                                         : Space::kGlobal;
    address = space == Space::kGlobal ? address : address - window;
  }
  a.address[static_cast<std::size_t>(lane)] = address;
  (space == Space::kShared  ? a.shared
   : space == Space::kLocal ? a.local
   : space == Space::kParam ? a.parameter
                            : a.global) |= bit;
}

bool inside(Warp& w, const Access& a, int lane, std::uint64_t address, int bytes) {
  const std::uint32_t bit = 1U << lane;
  const auto size = static_cast<std::size_t>(bytes);
  if ((a.global & bit) != 0) {
    const Block& b = w.block();
    const auto begin = reinterpret_cast<std::uint64_t>(b.globals.data());
    return b.footprint.find(address, size) != nullptr ||
           (address >= begin && address + size <= begin + b.globals.size());
  }
  if ((a.shared & bit) != 0) {
    return w.block().shared.holds(address, size);
  }
  if ((a.local & bit) != 0) {
    return w.local(lane).holds(address, size);
  }
  const std::size_t all = w.block().launch.parameters.size();
  return address <= all && size <= all - address;
}

void check(Warp& w, const Instruction& i, const Access& a, std::uint32_t mask, int bytes,
           bool writes) {
  for_lanes(mask, [&](int lane) {
    const std::uint64_t address = a.address[static_cast<std::size_t>(lane)];
    if (address % static_cast<unsigned>(bytes) != 0) {
      w.fail(i, lane,
             fmt::format("{} {} bytes at {:#x}, which is not aligned to them",
                         writes ? "writes" : "reads", bytes, address));
    }
    if (!inside(w, a, lane, address, bytes)) {
      const char* const space = (a.global >> lane & 1U) != 0   ? "global"
                                : (a.shared >> lane & 1U) != 0 ? "shared"
                                : (a.local >> lane & 1U) != 0  ? "local"
                                                               : "parameter";
      w.fail(i, lane,
             fmt::format("{} {} bytes at {:#x}, which lies outside of {} memory",
                         writes ? "writes" : "reads", bytes, address, space));
    }
  });
}

}  // namespace

Access resolve_in(Warp& w, const Instruction& i, int operand, std::uint32_t mask, int bytes,
                  bool writes, Space space) {
  w.require_defined(i, i.reg(operand), mask, "is an address");
  const Lanes& base = w.lanes(i.reg(operand));
  const auto offset = static_cast<std::uint64_t>(i.offsets[static_cast<std::size_t>(operand)]);
  // Addresses of shared and local memory may stand in 32 bits.
  const std::uint64_t keep = space == Space::kShared || space == Space::kLocal
                                 ? std::uint64_t{0xffffffff}
                                 : ~std::uint64_t{0};
  Access a;
  for_lanes(mask, [&](int lane) {
    place(a, lane, (base[static_cast<std::size_t>(lane)] + offset) & keep, space);
  });
  check(w, i, a, mask, bytes, writes);
  if (a.global != 0) {
    count_global(w, a, bytes, writes);
  }
  if (a.shared != 0) {
    count_shared(w, a, bytes);
  }
  w.block().counts.local_bytes +=
      static_cast<unsigned>(__builtin_popcount(a.local)) * static_cast<unsigned>(bytes);
  return a;
}

Access resolve(Warp& w, const Instruction& i, int operand, std::uint32_t mask, int bytes,
               bool writes) {
  return resolve_in(w, i, operand, mask, bytes, writes, i.space);
}

bool read_bytes(Warp& w, const Access& a, int lane, int at, void* to, std::size_t bytes) {
  const std::uint32_t bit = 1U << lane;
  const std::uint64_t address =
      a.address[static_cast<std::size_t>(lane)] + static_cast<unsigned>(at);
  if ((a.shared & bit) != 0) {
    return w.block().shared.load(address, to, bytes);
  }
  if ((a.local & bit) != 0) {
    return w.local(lane).load(address, to, bytes);
  }
  const void* const from =
      (a.parameter & bit) != 0
          ? static_cast<const void*>(w.block().launch.parameters.data() + address)
          : reinterpret_cast<const void*>(address);
  std::memcpy(to, from, bytes);
  return true;
}

void write_bytes(Warp& w, const Access& a, int lane, int at, const void* from, std::size_t bytes,
                 bool defined) {
  const std::uint32_t bit = 1U << lane;
  const std::uint64_t address =
      a.address[static_cast<std::size_t>(lane)] + static_cast<unsigned>(at);
  if ((a.shared & bit) != 0) {
    w.block().shared.store(address, from, bytes, defined);
  } else if ((a.local & bit) != 0) {
    w.local(lane).store(address, from, bytes, defined);
  } else if ((a.parameter & bit) == 0) {
    std::memcpy(reinterpret_cast<void*>(address), from, bytes);
  }
}

}  // namespace stepcast::models::ptx
