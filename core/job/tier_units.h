#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/system.h"

namespace stepcast {

/// Ranks draw on a memory tier in units of `shared_by` consecutive ones (a machine's DDR). Each
/// unit has the tier's whole capacity, also the last one where fewer ranks share it.
constexpr std::int64_t unit_of(std::int64_t rank, std::int64_t shared_by) {
  return rank / (shared_by > 1 ? shared_by : 1);
}
constexpr std::int64_t units_of(std::int64_t ranks, std::int64_t shared_by) {
  return ranks > 0 ? unit_of(ranks - 1, shared_by) + 1 : 0;
}

/// The tier of the hosts' memory.
inline constexpr std::string_view kHostTier = "ddr";

/// A device moves rows over a link of its own, an even share of the tier's bandwidth, whatever the
/// other devices of its unit move.
inline BytesPerSecond link_of_device(const Tier& tier) {
  return tier.bandwidth / static_cast<double>(tier.shared_by > 1 ? tier.shared_by : 1);
}

/// The tier of that name as a system has it; "hbm" is the device's own memory, of each rank alone.
std::optional<Tier> tier_named(const System& system, std::string_view name);

/// A unit that would have to hold more than it can.
struct TierExcess {
  std::int64_t unit = 0;
  std::int64_t fullest_rank = 0;  ///< of the unit
  Bytes held, capacity;
  [[nodiscard]] Bytes missing() const { return held - capacity; }
};
/// The unit that lacks most when rank r holds `held[r]`; nullopt where every unit has room. All who
/// ask whether rows fit a tier ask here.
std::optional<TierExcess> tier_excess(const Tier& tier, const std::vector<Bytes>& held);

}  // namespace stepcast
