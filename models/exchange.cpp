#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "models/collective_form.h"

namespace stepcast::models {
namespace {

/// Level whose port the pair uses: the innermost that joins both devices.
std::size_t level_between(const System& system, std::int32_t a, std::int32_t b) {
  for (std::size_t i = 0; i + 1 < system.fabric.size(); ++i) {
    const auto devices =
        static_cast<std::int32_t>(std::min<std::int64_t>(system.devices_in_level(i), INT32_MAX));
    if (a / devices == b / devices) {
      return i;
    }
  }
  return system.fabric.size() - 1;
}

/// Bytes a port has carried when each flow ends, all flows sharing it equally: sum_j min(b_j, b).
/// Writes the maximum into `end`.
void share_port(std::vector<std::pair<double, std::size_t>>& flows, std::vector<double>& end) {
  std::sort(flows.begin(), flows.end());
  double before = 0;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const auto& [bytes, pair] = flows[i];
    end[pair] = std::max(end[pair], before + bytes * static_cast<double>(flows.size() - i));
    before += bytes;
  }
}

}  // namespace

std::vector<double> exchange_port_bytes(std::span<const double> send,
                                        std::span<const std::int32_t> ranks, const System& system) {
  const std::size_t n = ranks.size();
  const std::size_t levels = system.fabric.size();
  STEPCAST_CHECK(send.size() == n * n, "send matrix of {} entries for {} ranks", send.size(), n);
  STEPCAST_CHECK(levels > 0, "exchange on a system without fabric");
  std::vector<double> end(n * n, 0.0);
  std::vector<std::pair<double, std::size_t>> flows;
  // A device port of level i carries its flows of level i and, beyond level 0, of the levels above:
  // they leave by the same card.
  for (std::size_t r = 0; r < n; ++r) {
    for (const bool outgoing : {true, false}) {
      for (std::size_t level = 0; level < levels; ++level) {
        flows.clear();
        for (std::size_t p = 0; p < n; ++p) {
          const std::size_t pair = outgoing ? r * n + p : p * n + r;
          if (p == r || send[pair] <= 0) {
            continue;
          }
          const std::size_t used = level_between(system, ranks[r], ranks[p]);
          if (level == 0 ? used == 0 : used >= level) {
            flows.emplace_back(send[pair], pair);
          }
        }
        share_port(flows, end);
      }
    }
  }
  std::vector<double> out(n * levels, 0.0);
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t p = 0; p < n; ++p) {
      if (p == r) {
        continue;
      }
      const std::size_t used = level_between(system, ranks[r], ranks[p]);
      double& slot = out[r * levels + used];
      slot = std::max({slot, end[r * n + p], end[p * n + r]});
    }
  }
  for (std::size_t r = 0; r < n;
       ++r) {  // beyond level 0 traffic of an outer level also passed the inner card
    for (std::size_t level = levels - 1; level > 1; --level) {
      double& inner = out[r * levels + level - 1];
      inner = std::max(inner, out[r * levels + level]);
    }
  }
  return out;
}

}  // namespace stepcast::models
