#include "runtime/calibration/cuda/arena.h"

#include <algorithm>
#include <random>

#include "core/error.h"
#include "runtime/cuda/check.h"
#include "runtime/cuda/device_memory.h"

namespace stepcast::runtime::calibration {

using cuda::check;

Arena::Arena(double share, std::size_t most, std::uint64_t seed) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  bytes_ = std::min(most, static_cast<std::size_t>(static_cast<double>(free) * share)) / 256 * 256;
  void* data = nullptr;
  check(cudaMalloc(&data, bytes_), "cudaMalloc of the sweep's memory");
  data_ = static_cast<char*>(data);
  refill(seed);
}

Arena::~Arena() { cuda::let_go(cudaFree(data_)); }

void Arena::refill(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> block((std::size_t{16} << 20) / sizeof(std::uint64_t));
  for (std::uint64_t& word : block) {
    // bf16: sign, exponent of 2^-8 .. 2^-1 (119 + 0..7), mantissa.
    const std::uint64_t r = random();
    constexpr std::uint64_t kSignMantissaExponent =
        0x83FF83FF83FF83FFULL;  // exponent's low three bits
    word = (r & kSignMantissaExponent) | 0x3B803B803B803B80ULL;
  }
  const std::size_t bytes = block.size() * sizeof(std::uint64_t);
  copy_in(data_, block.data(), std::min(bytes, bytes_));
  for (std::size_t at = bytes; at < bytes_; at += bytes) {
    check(cudaMemcpy(data_ + at, data_, std::min(bytes, bytes_ - at), cudaMemcpyDeviceToDevice),
          "cudaMemcpy on the device");
  }
}

void* Arena::take(std::size_t bytes) {
  if (bytes > bytes_ - next_) {
    throw InputError("", fmt::format("needs more than the {:.1f} GB this sweep may use",
                                     static_cast<double>(bytes_) / 1e9));
  }
  void* at = data_ + next_;
  next_ += std::min(bytes_ - next_, (bytes + 255) / 256 * 256);
  return at;
}

void Arena::copy_in(void* to, const void* from, std::size_t bytes) {
  cuda::copy_in(to, from, bytes, "what a case reads");
}

}  // namespace stepcast::runtime::calibration
