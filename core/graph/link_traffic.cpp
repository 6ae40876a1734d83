#include "core/graph/link_traffic.h"

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
