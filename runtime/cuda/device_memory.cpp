#include "runtime/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "core/error.h"
#include "runtime/cuda/alignment.h"
#include "runtime/cuda/check.h"

namespace stepcast::runtime::cuda {
Buffer::Buffer(Buffer&& other) noexcept
    : kind_(other.kind_),
      what_(std::move(other.what_)),
      ledger_(other.ledger_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

void Buffer::release() {
  if (data_ != nullptr) {
    let_go(kind_ == Kind::kDevice ? cudaFree(data_) : cudaFreeHost(data_));
  }
  if (ledger_ != nullptr) {
    ledger_->add(what_, -static_cast<double>(bytes_));
  }
  data_ = nullptr;
  bytes_ = 0;
}

void* Buffer::reserve(std::size_t bytes) {
  if (bytes <= bytes_) {
    return data_;
  }
  const std::size_t least = aligned(bytes);
  // A quarter more the second time, so that batches of random size soon fit.
  std::size_t wanted = bytes_ == 0 ? least : aligned(bytes + bytes / 4);
  if (data_ != nullptr) {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // work under way may still read it
  }
  release();
  const bool device = kind_ == Kind::kDevice;
  cudaError_t code = cudaSuccess;
  const auto take = [&] {
    code = device ? cudaMalloc(&data_, wanted) : cudaMallocHost(&data_, wanted);
    return code != cudaErrorMemoryAllocation;
  };
  if (!take() && wanted > least) {
    let_go(cudaGetLastError());
    wanted = least;
    take();
  }
  if (code == cudaErrorMemoryAllocation && device && ledger_ != nullptr) {
    let_go(cudaGetLastError());
    data_ = nullptr;
    std::size_t free = 0;
    std::size_t capacity = 0;
    check(cudaMemGetInfo(&free, &capacity), "cudaMemGetInfo");
    throw RunError(out_of_memory(*ledger_, what_, wanted, free, capacity));
  }
  check(code, device ? "cudaMalloc" : "cudaMallocHost");
  bytes_ = wanted;
  if (ledger_ != nullptr) {
    ledger_->add(what_, static_cast<double>(bytes_));
  }
  return data_;
}

void copy_in(void* to, const void* from, std::size_t bytes, std::string_view what) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), fmt::format("cudaMemcpy of {}", what));
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
}

}  // namespace stepcast::runtime::cuda
