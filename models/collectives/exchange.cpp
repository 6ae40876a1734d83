#include <algorithm>

#include "core/error.h"
#include "models/collectives/collective_form.h"

namespace stepcast::models {
namespace {

/// Level whose port each pair uses: the innermost that joins both devices.
class PairLevels {
 public:
  PairLevels(const System& system, std::span<const std::int32_t> ranks) : ranks_(ranks.size()) {
    for (std::size_t i = 0; i + 1 < system.fabric.size(); ++i) {
      const auto devices =
          static_cast<std::int32_t>(std::min<std::int64_t>(system.devices_in_level(i), INT32_MAX));
      std::vector<std::int32_t>& unit = units_.emplace_back();
      for (const std::int32_t r : ranks) {
        unit.push_back(r / devices);
      }
    }
  }
  /// From `r` to every other.
  [[nodiscard]] const std::vector<std::uint8_t>& of(std::size_t r) {
    levels_.assign(ranks_, static_cast<std::uint8_t>(units_.size()));
    for (std::size_t i = units_.size(); i-- > 0;) {
      const std::vector<std::int32_t>& unit = units_[i];
      for (std::size_t p = 0; p < ranks_; ++p) {
        levels_[p] = unit[p] == unit[r] ? static_cast<std::uint8_t>(i) : levels_[p];
      }
    }
    return levels_;
  }

 private:
  std::size_t ranks_;
  std::vector<std::vector<std::int32_t>> units_;  ///< by level but the outermost, then by rank
  std::vector<std::uint8_t> levels_;
};

/// Bytes a port has carried when each flow ends, all flows sharing it equally: sum_j min(b_j, b).
/// Writes the maximum into `end`; returns the bytes of all.
double share_port(std::vector<std::pair<double, std::size_t>>& flows, std::vector<double>& end) {
  if (!std::is_sorted(flows.begin(), flows.end())) {
    std::sort(flows.begin(), flows.end());
  }
  double before = 0;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const auto& [bytes, pair] = flows[i];
    end[pair] = std::max(end[pair], before + bytes * static_cast<double>(flows.size() - i));
    before += bytes;
  }
  return before;
}

}  // namespace

ExchangePorts exchange_ports(std::span<const double> send, std::span<const std::int32_t> ranks,
                             const System& system) {
  const std::size_t n = ranks.size();
  const std::size_t levels = system.fabric.size();
  STEPCAST_CHECK(send.size() == n * n, "send matrix of {} entries for {} ranks", send.size(), n);
  STEPCAST_CHECK(levels > 0, "exchange on a system without fabric");
  ExchangePorts ports{std::vector<double>(n * levels, 0.0), std::vector<PortUse>(n * levels)};
  std::vector<double>& out = ports.ends;
  std::vector<double> end(n * n, 0.0);
  std::vector<std::pair<double, std::size_t>> flows;
  // A device port of level i carries its flows of level i and, beyond level 0, of the levels above:
  // they leave by the same card.
  PairLevels levels_of(system, ranks);
  for (std::size_t r = 0; r < n; ++r) {
    const std::vector<std::uint8_t>& used = levels_of.of(r);
    for (const bool outgoing : {true, false}) {
      for (std::size_t level = 0; level < levels; ++level) {
        flows.clear();
        for (std::size_t p = 0; p < n; ++p) {
          const std::size_t pair = outgoing ? r * n + p : p * n + r;
          if (p == r || send[pair] <= 0) {
            continue;
          }
          if (level == 0 ? used[p] == 0 : used[p] >= level) {
            flows.emplace_back(send[pair], pair);
          }
        }
        PortUse& total = ports.totals[r * levels + level];
        (outgoing ? total.sent : total.received) = share_port(flows, end);
      }
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    const std::vector<std::uint8_t>& used = levels_of.of(r);
    for (std::size_t p = 0; p < n; ++p) {
      if (p == r) {
        continue;
      }
      double& slot = out[r * levels + used[p]];
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
  return ports;
}

}  // namespace stepcast::models
