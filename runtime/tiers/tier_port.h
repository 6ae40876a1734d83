#pragma once
#include <cstddef>
#include <cstdint>

namespace stepcast::runtime {

/// The way between a rank's own memory and slower tiers, where it takes described time.
class TierPort {
 public:
  virtual ~TierPort() = default;
  /// Returns when `bytes` that set out at `start` (steady clock, ns) are through. `tier`: index
  /// into the program's tiers.
  virtual void move(std::size_t tier, double bytes, std::int64_t start) = 0;
};

}  // namespace stepcast::runtime
