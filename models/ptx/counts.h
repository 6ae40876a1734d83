#pragma once
#include <cstdint>

namespace stepcast::models::ptx {

constexpr int kSector = 32;  ///< bytes in which global memory is moved
constexpr int kBanks = 32;   ///< of shared memory, 4 bytes wide each

/// Accesses of one state space and direction.
struct Traffic {
  std::uint64_t requests = 0;  ///< instructions of a warp
  std::uint64_t bytes = 0;     ///< that lanes asked for
  std::uint64_t sectors = 0;   ///< of 32 bytes that the requests touched, each request for itself
  std::uint64_t distinct = 0;  ///< bytes of the different sectors touched by all blocks together
  /// The same of the whole launch where a share of its blocks ran: what they touched of each piece
  /// of memory, scaled, and no more than the piece has.
  std::uint64_t of_launch = 0;
};

/// What a launch did.
struct Counts {
  std::uint64_t blocks = 0;
  std::uint64_t instructions = 0;  ///< issued, one per warp
  std::uint64_t lanes = 0;         ///< that took part in them
  std::uint64_t branches = 0;      ///< with a guard
  std::uint64_t divergent = 0;     ///< that parted a warp's lanes
  std::uint64_t barriers = 0;      ///< of a block
  Traffic loads, stores;           ///< of global memory, asynchronous copies included
  std::uint64_t atomics = 0;       ///< on global memory, by lanes
  std::uint64_t shared_requests = 0;
  std::uint64_t shared_passes = 0;  ///< cycles of a shared memory's port; over the least: conflicts
  std::uint64_t shared_conflicts = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t local_bytes = 0;
  std::uint64_t flops = 0;            ///< a multiply-add counts 2
  std::uint64_t special = 0;          ///< roots, reciprocals, exponentials: of lanes
  std::uint64_t tensor_products = 0;  ///< mma instructions
  std::uint64_t tensor_flops = 0;

  Counts& operator+=(const Counts& other);
};

}  // namespace stepcast::models::ptx
