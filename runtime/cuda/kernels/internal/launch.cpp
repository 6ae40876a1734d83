#include "runtime/cuda/kernels/internal/launch.h"

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace stepcast::runtime::cuda::kernels::internal {

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw RunError(fmt::format("CUDA kernel {}: {} ({})", kernel, cudaGetErrorString(error),
                               cudaGetErrorName(error)));
  }
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  check_launch("(multiprocessors of the device)");
  return count;
}

void require(bool holds, const char* promise) { STEPCAST_CHECK(holds, "{}", promise); }

void require_workspace(std::size_t given, std::size_t needed, const char* kernel) {
  STEPCAST_CHECK(given >= needed, "{} needs a workspace of {} bytes and got {}", kernel, needed,
                 given);
}

}  // namespace stepcast::runtime::cuda::kernels::internal
