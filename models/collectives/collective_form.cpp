#include "models/collectives/collective_form.h"

#include <algorithm>
#include <limits>

#include "core/graph/op_traits.h"

namespace stepcast::models {
namespace {

std::vector<std::unique_ptr<CollectiveForm>> make_forms() {
  std::vector<std::unique_ptr<CollectiveForm>> forms;
  forms.push_back(std::make_unique<FabricCollective>());
  forms.push_back(std::make_unique<KneeCollective>());
  return forms;
}

}  // namespace

double moved_bytes(OpKind kind, double bytes, double n) {
  const BufferShare moved = collective_traits(kind).moved;
  return (moved.others * (n - 1) / n + moved.whole) * bytes;
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
