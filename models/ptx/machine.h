#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/ptx/counts.h"
#include "models/ptx/memory.h"
#include "models/ptx/module.h"

namespace stepcast::models::ptx {

/// A launch of a kernel.
struct Launch {
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::size_t dynamic_shared = 0;
  std::vector<std::byte> parameters;
  /// Blocks that are run, one anywhere in each equal share of the grid; 0 all. Counts cover those
  /// alone.
  std::uint64_t most_blocks = 0;
};

/// Runs a launch, block after block. The lanes of a warp go in lockstep; where they part they meet
/// again at the branch's immediate postdominator. Registers, shared and local memory begin
/// undefined, and what is computed from undefined values is undefined.
///
/// Errors: RunError naming the kernel, the instruction's line in the PTX and in its source, block
/// and thread, for: an access outside of memory or not aligned to its width; an undefined value
/// that decides a branch, is an address or is stored to global memory; a barrier, shuffle or vote
/// that lanes it waits for do not reach; a launch that no device takes.
/// Source: PTX ISA 9.0. Approximations (ex2, rcp, rsqrt, sin, cos, lg2, tanh) are rounded exactly.
Counts run(const Kernel& kernel, const Launch& launch, const GlobalMemory& memory);

}  // namespace stepcast::models::ptx
