#include "tests/runtime/cuda/standin/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "tests/runtime/cuda/standin/device.h"

namespace stepcast::standin {
namespace {

constexpr std::size_t kAlignment = 256;
#ifdef __SANITIZE_ADDRESS__
constexpr bool kGuarded = false;
#else
constexpr bool kGuarded = true;
#endif

/// Pieces by their first address.
using Pieces = std::map<const std::byte*, std::size_t>;
Pieces device, host;
int depth = 0;  ///< of OnDevice

bool inside(const Pieces& pieces, const void* first, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(first);
  auto after = pieces.upper_bound(begin);
  return after != pieces.begin() && (--after, begin + bytes <= after->first + after->second);
}

/// Addresses of device memory, under a protection key of their own: the thread's rights to them
/// change at each OnDevice, at the cost of a register. Where the processor has no such keys, all
/// may touch them.
class Arena {
 public:
  Arena()
      : base_(static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        key_(pkey_alloc(0, 0)) {
    if (base_ == MAP_FAILED) {
      throw std::bad_alloc();
    }
    if (key_ >= 0 && pkey_mprotect(base_, kBytes, PROT_READ | PROT_WRITE, key_) != 0) {
      key_ = -1;
    }
  }
  /// The first gap that is large enough.
  std::byte* place(std::size_t bytes) const {
    std::byte* at = base_;
    for (const auto& [first, size] : device) {
      if (static_cast<std::size_t>(first - at) >= bytes) {
        break;
      }
      at = base_ + (static_cast<std::size_t>(first - base_) + size + kAlignment - 1) / kAlignment *
                       kAlignment;
    }
    if (static_cast<std::size_t>(at - base_) + bytes > kBytes) {
      throw std::bad_alloc();
    }
    return at;
  }
  void allow(bool access) const {
    if (key_ >= 0) {
      pkey_set(key_, access ? 0 : PKEY_DISABLE_ACCESS);
    }
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{16} << 30;
  std::byte* base_;
  int key_;
};

Arena& arena() {
  static Arena all;
  return all;
}

std::byte* from_heap(std::size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, kAlignment, bytes) != 0) {
    throw std::bad_alloc();
  }
  return static_cast<std::byte*>(p);
}

void* poisoned(std::byte* memory, std::size_t bytes) {
  std::memset(memory, 0xff, bytes);
  return memory;
}

}  // namespace

OnDevice::OnDevice() {
  if (kGuarded && depth++ == 0) {
    arena().allow(true);
  }
}

OnDevice::~OnDevice() {
  if (kGuarded && --depth == 0) {
    arena().allow(false);
  }
}

void* take_device_memory(std::size_t bytes) {
  const OnDevice writes;
  std::byte* memory = kGuarded ? arena().place(bytes) : from_heap(bytes);
  device.emplace(memory, bytes);
  return poisoned(memory, bytes);
}

void* take_pinned_memory(std::size_t bytes) {
  std::byte* memory = from_heap(bytes);
  host.emplace(memory, bytes);
  return poisoned(memory, bytes);
}

bool give_back(void* memory) {
  const auto* first = static_cast<const std::byte*>(memory);
  if (device.erase(first) > 0) {
    if (!kGuarded) {
      std::free(memory);
    }
    return true;
  }
  if (host.erase(first) > 0) {
    std::free(memory);
    return true;
  }
  return memory == nullptr;
}

std::size_t device_bytes_in_use() {
  std::size_t sum = 0;
  for (const auto& [first, bytes] : device) {
    sum += bytes;
  }
  return sum;
}

bool on_device(const void* first, std::size_t bytes) { return inside(device, first, bytes); }
bool pinned(const void* first, std::size_t bytes) { return inside(host, first, bytes); }

std::pair<const void*, std::size_t> piece_around(const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  for (const Pieces* pieces : {&device, &host}) {
    auto after = pieces->upper_bound(at);
    if (after != pieces->begin() && (--after, at < after->first + after->second)) {
      return {after->first, after->second};
    }
  }
  return {nullptr, 0};
}

}  // namespace stepcast::standin
