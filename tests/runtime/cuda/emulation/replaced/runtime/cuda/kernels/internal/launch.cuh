#pragma once
// In place of runtime/cuda/kernels/internal/launch.cuh: a launch runs on the host when its turn
// comes in the stand-in's stream.
#include <cstddef>
#include <type_traits>

#include "runtime/cuda/kernels/internal/launch.h"
#include "tests/runtime/cuda/emulation/block.h"
#include "tests/runtime/cuda/standin/device.h"

namespace stepcast::runtime::cuda::kernels::internal {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared = 0;
};

template <class... P>
void launch(const char* name, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
            std::type_identity_t<P>... arguments) {
  standin::arrive(stream);
  standin::enqueue([=] {
    emulation::run_grid(name, grid.blocks, grid.threads, grid.shared,
                        [&] { kernel(arguments...); });
  });
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::dynamic_shared());
}

}  // namespace stepcast::runtime::cuda::kernels::internal
