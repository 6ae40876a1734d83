#include "models/collectives/collective_form.h"

#include <algorithm>
#include <limits>

#include "core/graph/op_traits.h"

namespace stepcast::models {
namespace {

double members_at(const GroupShape& group, std::size_t level) {
  return static_cast<double>(group.members[level]);
}

std::vector<std::unique_ptr<CollectiveForm>> make_forms() {
  std::vector<std::unique_ptr<CollectiveForm>> forms;
  forms.push_back(std::make_unique<FabricCollective>());
  forms.push_back(std::make_unique<KneeCollective>());
  return forms;
}

}  // namespace

std::vector<Algorithm> algorithms(OpKind kind, const GroupShape& group, const System& system) {
  const CollectiveTraits& traits = collective_traits(kind);
  if (!traits.ends_together) {
    return {Algorithm::kDirect};
  }
  std::vector<Algorithm> out{Algorithm::kRing};
  const bool one_unit = group.members.empty() || group.members[0] >= group.size;
  if (traits.ring && *traits.ring != RingUse::kAllReduce) {
    if (one_unit && !group.members.empty() && system.fabric[0].in_switch_reduction) {
      out.push_back(Algorithm::kInSwitch);
    } else if (!one_unit && group.members[0] == 1) {
      out.push_back(Algorithm::kAggregatedTrees);
    }
    return out;
  }
  if (!one_unit) {
    out.push_back(Algorithm::kHierarchical);  // inside one unit it is the ring
  }
  for (std::size_t i = 0; kind == OpKind::kAllReduce && i < group.members.size(); ++i) {
    if (members_at(group, i) > group.members_below(i) && system.fabric[i].in_switch_reduction) {
      out.push_back(Algorithm::kInSwitch);
      break;
    }
  }
  return out;
}

double moved_bytes(OpKind kind, double bytes, double n) {
  const BufferShare moved = collective_traits(kind).moved;
  return (moved.others * (n - 1) / n + moved.whole) * bytes;
}

std::vector<double> port_bytes(OpKind kind, Algorithm algorithm, double bytes,
                               const GroupShape& group, const System& system) {
  std::vector<double> out(group.members.size(), 0.0);
  const auto size = static_cast<double>(group.size);
  if (size <= 1) {
    return out;
  }
  const CollectiveTraits& traits = collective_traits(kind);
  std::size_t outermost = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (members_at(group, i) > group.members_below(i)) {
      outermost = i;
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double below = group.members_below(i);
    const double at = members_at(group, i);
    if (below >= size) {
      break;  // the group lies inside one unit of the level below
    }
    switch (traits.pattern) {
      case CollectivePattern::kRing:
        if (algorithm == Algorithm::kRing || algorithm == Algorithm::kAggregatedTrees) {
          out[i] = at > below ? traits.moved.others * bytes * (size - 1) / size / below : 0;
        } else if (algorithm == Algorithm::kInSwitch && system.fabric[i].in_switch_reduction) {
          out[i] = bytes / below;
        } else {
          out[i] = traits.moved.others * bytes * (at - below) / (below * at);
        }
        break;
      case CollectivePattern::kExchange:
        out[i] = i == 0 ? bytes * (at - 1) / size : bytes * (size - below) / size;
        break;
      case CollectivePattern::kRooted:
        out[i] = bytes / below;  // one channel per member of the unit below
        break;
      case CollectivePattern::kPair:
        out[i] = i == outermost ? bytes : 0;
        break;
      case CollectivePattern::kNoBytes:
        break;
    }
  }
  return out;
}

double port_bandwidth(const System& system, const GroupShape& group, std::size_t level) {
  const FabricLevel& fabric = system.fabric[level];
  const double port = fabric.bandwidth.base();
  if (level == 0) {
    return port / std::max(1.0, fabric.oversubscription);
  }
  // The uplinks of one unit of the level below carry devices * port / oversubscription, shared by
  // the members active in it.
  const auto devices = static_cast<double>(system.devices_in_level(level - 1));
  const double siblings =
      level - 1 < group.siblings.size() ? static_cast<double>(group.siblings[level - 1]) : 1.0;
  const double active = std::clamp(group.members_below(level) * siblings, 1.0, devices);
  return std::min(port, port / std::max(1.0, fabric.oversubscription) * devices / active);
}

Seconds slowest_port(std::span<const double> bytes, const GroupShape& group, const System& system,
                     double efficiency) {
  double slowest = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) {
      slowest = std::max(slowest, bytes[i] / (port_bandwidth(system, group, i) * efficiency));
    }
  }
  return Seconds(slowest);
}

Seconds physical_limit(OpKind kind, double bytes, const GroupShape& group, const System& system) {
  if (group.size <= 1) {
    return {};
  }
  Seconds least(std::numeric_limits<double>::infinity());
  std::vector<Algorithm> all = algorithms(kind, group, system);
  if (all.front() == Algorithm::kRing) {
    all.push_back(Algorithm::kHierarchical);  // the least any algorithm without the switch can do
  }
  for (const Algorithm a : all) {
    least =
        std::min(least, slowest_port(port_bytes(kind, a, bytes, group, system), group, system, 1));
  }
  return least;
}

double exchanged_bytes(std::span<const double> level_bytes) {
  double outside = 0;
  for (std::size_t i = 1; i < level_bytes.size(); ++i) {
    outside = std::max(outside, level_bytes[i]);
  }
  return (level_bytes.empty() ? 0 : level_bytes[0]) + outside;
}

const std::vector<std::unique_ptr<CollectiveForm>>& builtin_collective_forms() {
  static const auto forms = make_forms();
  return forms;
}

const CollectiveForm* collective_form_named(std::string_view name) {
  for (const auto& form : builtin_collective_forms()) {
    if (form->name() == name) {
      return form.get();
    }
  }
  return nullptr;
}

std::vector<std::string> collective_keys(OpKind kind, Format format) {
  std::vector<std::string> keys;
  if (format != Format::kFp32) {
    keys.push_back(std::string(name_of(kind)) + "." + std::string(name_of(format)));
  }
  keys.emplace_back(name_of(kind));
  if (const std::string_view other = collective_traits(kind).fitted_as; !other.empty()) {
    keys.emplace_back(other);
  }
  keys.emplace_back("collective");
  return keys;
}

}  // namespace stepcast::models
