#pragma once
#include <string>
#include <vector>

#include "core/system.h"
#include "runtime/emulation/paced_fabric.h"
#include "runtime/tiers/tier_port.h"

namespace stepcast::runtime {

/// The memory tiers of a described system as token buckets: each rank has a link of its own to each
/// (link_of_device), for reads and writes together. Waiting sleeps.
class PacedTiers final : public TierPort {
 public:
  /// `names`: the program's tiers. Errors: InputError where the system lacks one of them.
  PacedTiers(const System& system, int devices, int rank, const std::vector<std::string>& names,
             PacedFabric::Link* links);
  static std::size_t links_needed(const System& system, int devices);

  void move(std::size_t tier, double bytes, std::int64_t start) override;

 private:
  struct Way {
    PacedFabric::Link* link = nullptr;
    double bytes_per_ns = 1;
  };
  std::vector<Way> ways_;
};

}  // namespace stepcast::runtime
