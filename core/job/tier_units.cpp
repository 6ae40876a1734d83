#include "core/job/tier_units.h"

#include <algorithm>

namespace stepcast {

std::optional<Tier> tier_named(const System& system, std::string_view name) {
  if (name == "hbm") {
    return Tier{"hbm", system.device.memory, system.device.bandwidth, 1};
  }
  const auto at = std::find_if(system.tiers.begin(), system.tiers.end(),
                               [name](const Tier& t) { return t.name == name; });
  return at == system.tiers.end() ? std::nullopt : std::optional(*at);
}

std::optional<TierExcess> tier_excess(const Tier& tier, const std::vector<Bytes>& held) {
  const auto ranks = static_cast<std::int64_t>(held.size());
  std::vector<TierExcess> units(static_cast<std::size_t>(units_of(ranks, tier.shared_by)));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t u = unit_of(rank, tier.shared_by);
    TierExcess& unit = units[static_cast<std::size_t>(u)];
    const Bytes here = held[static_cast<std::size_t>(rank)];
    if (rank == u * std::max<std::int64_t>(1, tier.shared_by) ||
        here > held[static_cast<std::size_t>(unit.fullest_rank)]) {
      unit.fullest_rank = rank;
    }
    unit.unit = u;
    unit.capacity = tier.capacity;
    unit.held += here;
  }
  const auto worst = std::max_element(units.begin(), units.end(), [](const auto& a, const auto& b) {
    return a.missing() < b.missing();
  });
  return worst == units.end() || worst->held <= worst->capacity ? std::nullopt
                                                                : std::optional(*worst);
}

}  // namespace stepcast
