#include "core/graph/link_traffic.h"

#include <algorithm>
#include <map>

namespace stepcast {

LinkLevels::LinkLevels(const System& system) {
  for (std::size_t i = 0; i < system.fabric.size(); ++i) {
    names_.push_back(system.fabric[i].name);
    units_.push_back(system.devices_in_level(i));
  }
  if (names_.empty()) {
    names_.emplace_back("links");
    units_.push_back(INT64_MAX);
  }
}

std::size_t LinkLevels::between(std::int64_t a, std::int64_t b) const {
  std::size_t level = 0;
  while (level + 1 < units_.size() && a / units_[level] != b / units_[level]) {
    ++level;
  }
  return level;
}

std::vector<std::vector<int>> ring_levels(std::span<const std::int64_t> units,
                                          std::span<const std::int32_t> members, int position) {
  const auto n = static_cast<int>(members.size());
  const auto own = static_cast<std::size_t>(position);
  // place[i]: index of member i among the members of its unit of the level at hand.
  std::vector<int> place(members.size(), 0);
  std::vector<std::vector<int>> rings;
  std::size_t per_unit = 1;
  bool regular = true;
  for (std::size_t level = 0; level < units.size() && regular; ++level) {
    std::map<std::int64_t, std::vector<int>> inside_of;
    for (int i = 0; i < n; ++i) {
      inside_of[members[static_cast<std::size_t>(i)] / units[level]].push_back(i);
    }
    const std::size_t here = inside_of.begin()->second.size();
    for (const auto& [unit, inside] : inside_of) {
      regular = regular && inside.size() == here && here % per_unit == 0;
      std::vector<std::size_t> seen(per_unit, 0);
      for (const int i : inside) {
        ++seen[static_cast<std::size_t>(place[static_cast<std::size_t>(i)])];
      }
      regular = regular && std::count(seen.begin(), seen.end(), here / per_unit) ==
                               static_cast<std::ptrdiff_t>(per_unit);
    }
    if (!regular) {
      break;
    }
    const auto& mine = inside_of[members[own] / units[level]];
    std::vector<int> peers;
    std::copy_if(mine.begin(), mine.end(), std::back_inserter(peers),
                 [&](int i) { return place[static_cast<std::size_t>(i)] == place[own]; });
    if (peers.size() > 1) {
      rings.push_back(std::move(peers));
    }
    for (const auto& [unit, inside] : inside_of) {
      for (std::size_t k = 0; k < inside.size(); ++k) {
        place[static_cast<std::size_t>(inside[k])] = static_cast<int>(k);
      }
    }
    per_unit = here;
  }
  if (!regular || per_unit != members.size()) {
    rings.assign(1, {});
    for (int i = 0; i < n; ++i) {
      rings[0].push_back(i);
    }
  }
  return rings;
}

void add_ring_bytes(const LinkLevels& levels, std::span<const std::int32_t> members, int position,
                    RingUse use, double bytes, std::span<double> sent) {
  const double ways = use == RingUse::kAllReduce ? 2 : 1;
  for (const auto& peers : ring_levels(levels.units(), members, position)) {
    const auto own = std::find(peers.begin(), peers.end(), position) - peers.begin();
    const auto n = static_cast<std::ptrdiff_t>(peers.size());
    const int next = peers[static_cast<std::size_t>((own + 1) % n)];
    bytes /= static_cast<double>(n);
    sent[levels.between(members[static_cast<std::size_t>(position)],
                        members[static_cast<std::size_t>(next)])] +=
        ways * bytes * static_cast<double>(n - 1);
  }
}

void add_pair_bytes(const LinkLevels& levels, std::span<const std::int32_t> members, int position,
                    std::span<const double> bytes_to, std::span<double> sent) {
  const std::int32_t own = members[static_cast<std::size_t>(position)];
  for (std::size_t i = 0; i < bytes_to.size(); ++i) {
    if (members[i] != own) {
      sent[levels.between(own, members[i])] += bytes_to[i];
    }
  }
}

}  // namespace stepcast
