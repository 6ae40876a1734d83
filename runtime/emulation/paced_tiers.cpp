#include "runtime/emulation/paced_tiers.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/job/tier_units.h"
#include "runtime/futex.h"

namespace stepcast::runtime {
namespace {

constexpr double kTierChunkTime = 250'000;       // ns: how finely ranks take turns
constexpr double kSmallestTierChunk = 4 * 1024;  // bytes
constexpr std::int64_t kTierAhead = 500'000;     // ns a rank may book ahead of the clock

}  // namespace

std::size_t PacedTiers::links_needed(const System& system, int devices) {
  return system.tiers.size() * static_cast<std::size_t>(devices);
}

PacedTiers::PacedTiers(const System& system, int devices, int rank,
                       const std::vector<std::string>& names, PacedFabric::Link* links) {
  for (const std::string& name : names) {
    const auto at = std::find_if(system.tiers.begin(), system.tiers.end(),
                                 [&name](const Tier& t) { return t.name == name; });
    if (at == system.tiers.end() || !(at->bandwidth.base() > 0)) {
      throw InputError(
          fmt::format("system '{}': tiers", system.name),
          fmt::format("no tier \"{}\" with a bandwidth, where the plan keeps rows; add "
                      "it, or emulate a system that has it",
                      name));
    }
    const auto first =
        static_cast<std::size_t>(at - system.tiers.begin()) * static_cast<std::size_t>(devices);
    ways_.push_back({links + first + rank, link_of_device(*at).base() * 1e-9});
  }
}

void PacedTiers::move(std::size_t tier, double bytes, std::int64_t start) {
  const Way& way = ways_.at(tier);
  const double chunk = std::max(kSmallestTierChunk, std::min(bytes / 4, way.bytes_per_ns * kTierChunkTime));
  std::int64_t clock = start;
  for (double left = bytes; left > 0; left -= chunk) {
    if (clock - steady_ns() > kTierAhead) {
      sleep_until_ns(clock - kTierAhead / 2);
    }
    const std::int64_t duration = std::llround(std::min(left, chunk) / way.bytes_per_ns);
    clock = PacedFabric::book(*way.link, clock, duration) + duration;
  }
  sleep_until_ns(clock);
}

}  // namespace stepcast::runtime
