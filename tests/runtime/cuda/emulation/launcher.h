#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <vector>

namespace stepcast::emulation {

/// A launch of a kernel that the host has compiled too.
struct KernelLaunch {
  const char* name;
  const void* function;  ///< of the kernel, instantiated
  dim3 blocks;
  dim3 threads;
  std::size_t shared;
  std::function<void()> body;  ///< of one thread
  std::function<std::vector<std::byte>()> parameters;
};

/// What launches go through instead of run_grid; none: they run there.
using Launcher = std::function<void(const KernelLaunch&)>;
void set_launcher(Launcher launcher);
void run_kernel(const KernelLaunch& launch);

}  // namespace stepcast::emulation
