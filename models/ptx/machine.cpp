#include "models/ptx/machine.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "models/ptx/warp.h"

namespace stepcast::models::ptx {
namespace {

constexpr std::size_t kMostShared = 227 * 1024;  // of a block on compute capability 9.0
constexpr std::uint32_t kMostThreads = 1024;
constexpr std::uint32_t kMostBlocksYZ = 65535;

std::uint64_t product(const std::array<std::uint32_t, 3>& sizes) {
  return std::uint64_t{sizes[0]} * sizes[1] * sizes[2];
}

void check(const Kernel& kernel, const Launch& launch) {
  const std::uint64_t threads = product(launch.block);
  const std::uint64_t most =
      kernel.most_threads[0] == 0 ? kMostThreads : product(kernel.most_threads);
  if (threads == 0 || threads > std::min<std::uint64_t>(most, kMostThreads)) {
    throw RunError(fmt::format("kernel {}: found {} threads a block; expected 1 to {}", kernel.name,
                               threads, std::min<std::uint64_t>(most, kMostThreads)));
  }
  if (product(launch.grid) == 0 || launch.grid[1] > kMostBlocksYZ ||
      launch.grid[2] > kMostBlocksYZ) {
    throw RunError(fmt::format("kernel {}: no device takes a grid of {} x {} x {} blocks",
                               kernel.name, launch.grid[0], launch.grid[1], launch.grid[2]));
  }
  if (kernel.shared_bytes + launch.dynamic_shared > kMostShared) {
    throw RunError(
        fmt::format("kernel {}: found {} + {} bytes of shared memory; expected {} at most",
                    kernel.name, kernel.shared_bytes, launch.dynamic_shared, kMostShared));
  }
  if (launch.parameters.size() != kernel.parameter_bytes) {
    throw RunError(fmt::format("kernel {}: found {} bytes of parameters; expected {}", kernel.name,
                               launch.parameters.size(), kernel.parameter_bytes));
  }
}

/// Warps take turns: each runs until a barrier, which opens when all that have not ended are there.
void run_block(Block& block, std::vector<std::unique_ptr<Warp>>& warps) {
  block.shared.poison();
  for (const auto& w : warps) {
    w->start();
  }
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (const auto& w : warps) {
      waiting = w->run() == Warp::State::kAtBarrier || waiting;
    }
    if (waiting) {
      ++block.counts.barriers;
      for (const auto& w : warps) {
        if (w->state() == Warp::State::kAtBarrier) {
          w->pass_barrier();
        }
      }
      block.votes = {};
    }
  }
}

}  // namespace

Counts run(const Kernel& kernel, const Launch& launch, const GlobalMemory& memory) {
  check(kernel, launch);
  Counts counts;
  Footprint footprint(memory);
  const std::size_t shared = (kernel.shared_bytes + 15) / 16 * 16 + launch.dynamic_shared;
  Block block{kernel,
              launch,
              counts,
              footprint,
              PoisonedMemory(shared),
              std::vector<std::byte>(kernel.global_bytes),
              {},
              {}};
  std::vector<std::unique_ptr<Warp>> warps;
  for (std::uint64_t first = 0; first < product(launch.block); first += kLanes) {
    warps.push_back(std::make_unique<Warp>(block, static_cast<int>(first / kLanes)));
  }
  const std::uint64_t all = product(launch.grid);
  counts.blocks = launch.most_blocks == 0 ? all : std::min(all, launch.most_blocks);
  const double share = static_cast<double>(all) / static_cast<double>(counts.blocks);
  for (std::uint64_t i = 0; i < counts.blocks; ++i) {
    // Anywhere in each share of the grid: what blocks do often follows from powers of two.
    constexpr double kGoldenRatio = 0.6180339887498949;
    const double turn = static_cast<double>(i) * kGoldenRatio;
    const double at = (static_cast<double>(i) + turn - std::floor(turn)) * share;
    const std::uint64_t b = counts.blocks == all ? i : static_cast<std::uint64_t>(at);
    block.at = {static_cast<std::uint32_t>(b % launch.grid[0]),
                static_cast<std::uint32_t>(b / launch.grid[0] % launch.grid[1]),
                static_cast<std::uint32_t>(b / launch.grid[0] / launch.grid[1])};
    run_block(block, warps);
  }
  const auto [read, written] = footprint.bytes();
  counts.loads.distinct = read;
  counts.stores.distinct = written;
  const auto [all_read, all_written] = footprint.bytes(share);
  counts.loads.of_launch = all_read;
  counts.stores.of_launch = all_written;
  return counts;
}

}  // namespace stepcast::models::ptx
