#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

namespace stepcast::runtime {

/// Sleeping on a word of memory, without a lock and without spinning. `shared`: the word is in
/// memory that several processes map.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                       bool shared = false, const timespec* relative_timeout = nullptr) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
          shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, expected, relative_timeout, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word, bool shared = false) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word),
          shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

/// Nanoseconds of the steady clock; the same clock in every process of a machine.
inline std::int64_t steady_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// Sleeps until the steady clock reaches `ns`; uses no CPU.
inline void sleep_until_ns(std::int64_t ns) {
  const timespec t{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) != 0) {
  }
}

}  // namespace stepcast::runtime
