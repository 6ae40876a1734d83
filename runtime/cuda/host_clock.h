#pragma once
#include <chrono>
#include <cstdint>

namespace stepcast::runtime::cuda {

/// Nanoseconds of the steady clock.
inline std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace stepcast::runtime::cuda
