#pragma once
#include <cstddef>

namespace stepcast::runtime::cuda {

constexpr std::size_t kAlignment = 256;  ///< of device buffers and their parts, in bytes

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace stepcast::runtime::cuda
