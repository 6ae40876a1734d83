#pragma once
// In place of runtime/cuda/kernels/internal/launch.cuh: a launch runs on the host when its turn
// comes in the stand-in's stream.
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "runtime/cuda/kernels/internal/launch.h"
#include "tests/runtime/cuda/emulation/launcher.h"
#include "tests/runtime/cuda/standin/device.h"

namespace stepcast::runtime::cuda::kernels::internal {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared = 0;
};

/// Parameters as they lie in a kernel's parameter space: in order, each aligned as its type.
template <class... P>
std::vector<std::byte> parameters_of(const P&... arguments) {
  std::vector<std::byte> bytes;
  const auto add = [&bytes](const auto& argument) {
    using T = std::remove_cvref_t<decltype(argument)>;
    const std::size_t at = (bytes.size() + alignof(T) - 1) / alignof(T) * alignof(T);
    bytes.resize(at + sizeof(T));
    std::memcpy(bytes.data() + at, &argument, sizeof(T));
  };
  (add(arguments), ...);
  return bytes;
}

template <class... P>
void launch(const char* name, void (*kernel)(P...), const Grid& grid, cudaStream_t stream,
            std::type_identity_t<P>... arguments) {
  standin::arrive(stream);
  standin::enqueue([=] {
    emulation::run_kernel({name, reinterpret_cast<const void*>(kernel), grid.blocks, grid.threads,
                           grid.shared, [&] { kernel(arguments...); },
                           [&] { return parameters_of<P...>(arguments...); }});
  });
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulation::dynamic_shared());
}

}  // namespace stepcast::runtime::cuda::kernels::internal
