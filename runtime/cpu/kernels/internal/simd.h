#pragma once
#include <cstdint>

#include "runtime/cpu/kernels/internal/exponential.h"
#include "runtime/cpu/kernels/internal/multiversion.h"

namespace stepcast::runtime::kernels::internal {

constexpr std::uintptr_t kCacheLine = 64;

/// Every cache line that the row touches.
STEPCAST_INLINE void prefetch_row(const float* row, std::int64_t columns) {
  const auto address = reinterpret_cast<std::uintptr_t>(row);
  const std::uintptr_t end = address + static_cast<std::uintptr_t>(columns) * sizeof(float);
  for (std::uintptr_t line = address & ~(kCacheLine - 1); line < end; line += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 3);
  }
}

STEPCAST_INLINE float sum_of(const float* x, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    sum += x[i];
  }
  return sum;
}

STEPCAST_INLINE float dot_of(const float* x, const float* y, std::int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) {
    sum += x[i] * y[i];
  }
  return sum;
}

STEPCAST_INLINE float maximum_of(const float* x, std::int64_t n, float floor) {
  float largest = floor;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    largest = x[i] > largest ? x[i] : largest;
  }
  return largest;
}

}  // namespace stepcast::runtime::kernels::internal
