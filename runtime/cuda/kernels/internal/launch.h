#pragma once
#include <cstddef>

namespace stepcast::runtime::cuda::kernels::internal {

// Compiled by the host compiler: formatting stays out of device sources.

/// Throws RunError naming the kernel if the launch just made was rejected.
void check_launch(const char* kernel);

/// Throws InternalError with `promise` (what the caller should have seen to) unless it holds.
void require(bool holds, const char* promise);

/// Throws InternalError unless a workspace of `given` bytes holds `needed`.
void require_workspace(std::size_t given, std::size_t needed, const char* kernel);

/// Those of the current device. Errors: RunError.
int multiprocessors();

}  // namespace stepcast::runtime::cuda::kernels::internal
