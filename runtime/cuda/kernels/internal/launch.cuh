#pragma once
#include <cstddef>
#include <type_traits>

#include "runtime/cuda/kernels/internal/launch.h"

namespace stepcast::runtime::cuda::kernels::internal {

/// The shape of a launch.
struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared = 0;  ///< bytes of dynamic shared memory of a block
};

/// Dynamic shared memory that every kernel may have; more has to be asked for.
constexpr std::size_t kDefaultShared = 48 * 1024;

/// Enqueues a kernel. RunError with `name` if the launch is rejected.
template <class... P>
void launch(const char* name, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
            std::type_identity_t<P>... arguments) {
  if (grid.shared > kDefaultShared) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(grid.shared));
    check_launch(name);
  }
  kernel<<<grid.blocks, grid.threads, grid.shared, stream>>>(arguments...);
  check_launch(name);
}

/// The dynamic shared memory of the block, 16-byte aligned.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
}

}  // namespace stepcast::runtime::cuda::kernels::internal
