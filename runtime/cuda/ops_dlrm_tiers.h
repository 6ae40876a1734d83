#pragma once
#include <map>
#include <utility>

#include "runtime/cuda/device_memory.h"
#include "runtime/tiers/tiered_rows.h"

namespace stepcast::runtime::cuda {

/// The caches of a rank's shards in slower tiers. Which row is in which slot the host decides; rows
/// and slots are moved by the device, which reads and writes the tier (page-locked host memory)
/// itself.
struct TieredCaches {
  /// Lists of one op and shard, on their way between host and device until the step has ended.
  struct Staging {
    Buffer ids{Buffer::Kind::kPinned, "ids"};
    Buffer slots{Buffer::Kind::kPinned, "slots"};
    Buffer moves{Buffer::Kind::kPinned, "moves of rows"};
    Buffer moves_on_device;
    explicit Staging(Ledger* ledger)
        : moves_on_device(Buffer::Kind::kDevice, "index lists", ledger) {}
  };
  explicit TieredCaches(const Program& program) : rows(program) {}

  TieredRows rows;
  std::map<std::pair<const Op*, std::size_t>, Staging> staging;
};

}  // namespace stepcast::runtime::cuda
