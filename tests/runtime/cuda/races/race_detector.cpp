#include "tests/runtime/cuda/races/race_detector.h"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "core/error.h"
#include "tests/runtime/cuda/standin/device_memory.h"

// Bounds between which the linker puts variables of the program: shared memory of kernels is among
// them.
extern "C" char __data_start, _end;  // NOLINT: the linker's names

namespace stepcast::test {
namespace {

enum class Region : std::uint8_t { kLocal, kShared, kDevice };

bool is_variable(const void* p) {
  return p >= static_cast<const void*>(&__data_start) && p < static_cast<const void*>(&_end);
}

std::uintptr_t load_address() {
  std::uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

/// "file.cu:12" of an instruction, by addr2line.
std::string line_of(const void* code) {
  if (code == nullptr) {
    return "an asynchronous copy";
  }
  const auto at = reinterpret_cast<std::uintptr_t>(code) - load_address() - 1;
  const std::string command = fmt::format("addr2line -e /proc/{}/exe {:#x}", getpid(), at);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string line(512, '\0');
  if (pipe == nullptr ||
      std::fgets(line.data(), static_cast<int>(line.size()), pipe.get()) == nullptr) {
    return fmt::format("{:#x}", at);
  }
  line.resize(line.find_first_of(std::string("\n\0", 2)));
  return line.substr(line.rfind('/') + 1);
}

}  // namespace

RaceDetector& RaceDetector::current() {
  static RaceDetector one;
  return one;
}

void RaceDetector::watch() {
  emulation::set_observer(&current());
  emulation::set_accessed([](const void* first, std::size_t bytes, bool written) {
    current().access(first, bytes, written, nullptr);
  });
}

void RaceDetector::launch_begins(const char* kernel) {
  kernel_ = kernel;
  ++launches_;
  pages_.clear();
  page_ = nullptr;
  piece_ = {};
  races_.clear();
}

void RaceDetector::block_begins(std::size_t threads, const void* shared, std::size_t bytes) {
  ++blocks_;
  interval_ = 0;
  shared_ = static_cast<const std::byte*>(shared);
  shared_bytes_ = bytes;
  threads_.assign(threads, {});
  for (std::size_t t = 0; t < threads; ++t) {
    threads_[t].seen[t % kLanes] = 1;
  }
}

void RaceDetector::barrier_opens() { ++interval_; }

/// Joins what the lanes have seen: what each has, all have; what each does from now on is new.
void RaceDetector::warp_barrier_opens(unsigned warp, std::uint32_t lanes) {
  std::array<std::uint32_t, kLanes> all{};
  const auto members = [&](auto f) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      if ((lanes >> lane & 1U) != 0) {
        f(lane, threads_[warp * kLanes + lane]);
      }
    }
  };
  members([&](std::size_t, const Thread& t) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      all[i] = std::max(all[i], t.seen[i]);
    }
  });
  members([&](std::size_t lane, Thread& t) {
    t.seen = all;
    ++t.seen[lane];
  });
}

bool RaceDetector::ordered(const Access& a, const Access& b) const {
  if (a.block != b.block) {
    return false;
  }
  if (a.thread == b.thread || a.interval < b.interval) {
    return true;
  }
  return a.thread / kLanes == b.thread / kLanes &&
         threads_[b.thread].seen[a.thread % kLanes] >= a.clock;
}

void RaceDetector::access(const void* first, std::size_t bytes, bool written, const void* code) {
  const int thread = emulation::running_thread();
  if (thread < 0) {
    return;
  }
  const auto* const p = static_cast<const std::byte*>(first);
  const bool shared = (p >= shared_ && p < shared_ + shared_bytes_) || is_variable(first);
  if (!shared && !in_device_memory(p, bytes)) {
    return;
  }
  ++accesses_;
  const auto t = static_cast<std::size_t>(thread);
  Access now{blocks_, static_cast<std::uint32_t>(t), interval_, threads_[t].seen[t % kLanes], 0,
             written, emulation::Atomic::any(),      code};
  const auto begin = reinterpret_cast<std::uint64_t>(first);
  for (std::uint64_t word = begin / 4; word <= (begin + bytes - 1) / 4; ++word) {
    now.bytes = 0;
    for (std::uint64_t b = 0; b < 4; ++b) {
      const std::uint64_t byte = word * 4 + b;
      now.bytes |=
          static_cast<std::uint8_t>((byte >= begin && byte < begin + bytes ? 1U : 0U) << b);
    }
    access_word(word, shared ? blocks_ : 0, now);
  }
}

bool RaceDetector::in_device_memory(const std::byte* first, std::size_t bytes) {
  if (first < piece_.first || first + bytes > piece_.second) {
    const auto [begin, size] = standin::piece_around(first);
    const auto* const b = static_cast<const std::byte*>(begin);
    if (size == 0) {
      return false;
    }
    piece_ = {b, b + size};
  }
  return true;
}

RaceDetector::Word& RaceDetector::word_at(std::uint64_t word) {
  const std::uint64_t number = word / kPageWords;
  if (page_ == nullptr || number != last_page_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) {
      page = std::make_unique<Page>();
    }
    page_ = page.get();
    last_page_ = number;
  }
  return (*page_)[word % kPageWords];
}

void RaceDetector::access_word(std::uint64_t word, std::uint64_t epoch, const Access& now) {
  Word& w = word_at(word);
  if (w.epoch != epoch) {
    w.epoch = epoch;
    w.kept.clear();
  }
  bool known = false;
  std::erase_if(w.kept, [&](const Access& a) {
    if ((a.bytes & now.bytes) == 0) {
      return false;
    }
    if (!ordered(a, now)) {
      if ((a.written || now.written) && !(a.atomic && now.atomic)) {
        report(a, now, reinterpret_cast<const void*>(word * 4));
      }
      return false;
    }
    const bool covers =
        (a.bytes & ~now.bytes) == 0 && (now.written || !a.written) && (a.atomic || !now.atomic);
    known = known || (a.thread == now.thread && a.interval == now.interval &&
                      a.clock == now.clock && (now.bytes & ~a.bytes) == 0 &&
                      (a.written || !now.written) && (now.atomic || !a.atomic));
    return covers && !known;
  });
  if (!known && (w.kept.size() < kKept || now.written)) {
    w.kept.push_back(now);
  }
}

void RaceDetector::report(const Access& a, const Access& b, const void* address) {
  std::string& text = races_[std::minmax(a.code, b.code)];
  if (!text.empty()) {
    return;
  }
  const auto one = [](const Access& x) {
    return fmt::format("{} at {} by thread {}",
                       x.atomic    ? "atomic"
                       : x.written ? "write"
                                   : "read",
                       line_of(x.code), x.thread);
  };
  text = fmt::format("{} and {} of {}, {} memory at {}", one(a), one(b),
                     a.block == b.block ? "one block" : "two blocks",
                     standin::on_device(address, 1) ? "device" : "shared", address);
}

void RaceDetector::launch_ends() {
  threads_.clear();
  if (races_.empty()) {
    return;
  }
  std::string all;
  for (const auto& [places, text] : races_) {
    all += "\n  " + text;
  }
  throw RunError(fmt::format("CUDA kernel {}: nothing orders{}", kernel_, all));
}

}  // namespace stepcast::test

// Functions that a compiler calls for each access with -fsanitize=thread, in place of its runtime
// library.
using stepcast::test::RaceDetector;

#define SEEN(name, bytes, written)                                                  \
  void name(void* p) {                                                              \
    RaceDetector::current().access(p, bytes, written, __builtin_return_address(0)); \
  }
extern "C" {
SEEN(__tsan_read1, 1, false)
SEEN(__tsan_read2, 2, false)
SEEN(__tsan_read4, 4, false)
SEEN(__tsan_read8, 8, false)
SEEN(__tsan_read16, 16, false)
SEEN(__tsan_write1, 1, true)
SEEN(__tsan_write2, 2, true)
SEEN(__tsan_write4, 4, true)
SEEN(__tsan_write8, 8, true)
SEEN(__tsan_write16, 16, true)
SEEN(__tsan_unaligned_read2, 2, false)
SEEN(__tsan_unaligned_read4, 4, false)
SEEN(__tsan_unaligned_read8, 8, false)
SEEN(__tsan_unaligned_read16, 16, false)
SEEN(__tsan_unaligned_write2, 2, true)
SEEN(__tsan_unaligned_write4, 4, true)
SEEN(__tsan_unaligned_write8, 8, true)
SEEN(__tsan_unaligned_write16, 16, true)
SEEN(__tsan_vptr_read, 8, false)
void __tsan_vptr_update(void* p, void*) {
  RaceDetector::current().access(p, 8, true, __builtin_return_address(0));
}
void __tsan_read_range(void* p, std::size_t bytes) {
  RaceDetector::current().access(p, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, std::size_t bytes) {
  RaceDetector::current().access(p, bytes, true, __builtin_return_address(0));
}
/// The host's reference counts alone: kernels have their own atomics.
std::uint32_t __tsan_atomic32_fetch_add(volatile std::uint32_t* p, std::uint32_t value, int) {
  return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
