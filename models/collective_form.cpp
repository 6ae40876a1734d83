#include "models/collective_form.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/memory_bound.h"

namespace stepcast::models {
namespace {

double members_below(const GroupShape& group, std::size_t level) {
  return level == 0 ? 1.0 : static_cast<double>(group.members[level - 1]);
}
double members_at(const GroupShape& group, std::size_t level) {
  return static_cast<double>(group.members[level]);
}

bool halves(OpKind kind) { return kind == OpKind::kAllGather || kind == OpKind::kReduceScatter; }

/// Sum over levels of latency times sequential hops: a ring walks every member, a tree or a switch
/// doubles at each hop.
double hop_latency(const System& system, const GroupShape& group, bool ring) {
  double total = 0;
  const auto size = static_cast<double>(group.size);
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const double below = members_below(group, i);
    const double at = members_at(group, i);
    const double hops = ring ? size / below - size / at : std::log2(at / below);
    total += hops * system.fabric[i].latency.base();
  }
  return total;
}

double outermost_latency(const System& system, const GroupShape& group) {
  double latency = 0;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    if (members_at(group, i) > members_below(group, i)) {
      latency = system.fabric[i].latency.base();
    }
  }
  return latency;
}

enum FabricConstant { kStart, kLatency, kPeer, kRing, kHierarchical, kInSwitch, kRamp, kRampBytes };
enum KneeConstant { kKneeStart, kMember, kNear, kFar, kCapacity, kRendezvous, kThreshold, kSelf };

double slowest_port(std::span<const double> bytes, const GroupShape& group, const System& system,
                    double efficiency) {
  double slowest = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) {
      slowest = std::max(slowest, bytes[i] / (port_bandwidth(system, group, i) * efficiency));
    }
  }
  return slowest;
}

double saturating(double x, double half) { return x <= 0 ? 0 : x / (x + half); }

std::string_view algorithm_name(Algorithm a) {
  switch (a) {
    case Algorithm::kRing:
      return "ring, pipelined over levels";
    case Algorithm::kHierarchical:
      return "hierarchical, pipelined over levels";
    case Algorithm::kInSwitch:
      return "reduction in the switch";
    case Algorithm::kDirect:
      return "direct";
  }
  return "";
}

/// Algorithms that may carry out a collective on this group.
std::vector<Algorithm> candidates(OpKind kind, const GroupShape& group, const System& system) {
  if (kind == OpKind::kAllReduce || halves(kind)) {
    std::vector<Algorithm> a{Algorithm::kRing, Algorithm::kHierarchical};
    if (kind == OpKind::kAllReduce && !group.members.empty() && group.members[0] > 1 &&
        system.fabric[0].in_switch_reduction) {
      a.push_back(Algorithm::kInSwitch);
    }
    return a;
  }
  return {Algorithm::kDirect};
}

double moved_bytes(OpKind kind, double bytes, double n) {
  switch (kind) {
    case OpKind::kAllReduce:
      return 2 * (n - 1) / n * bytes;
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
    case OpKind::kAllToAllV:
      return (n - 1) / n * bytes;
    default:
      return bytes;
  }
}

std::vector<std::unique_ptr<CollectiveForm>> make_forms() {
  std::vector<std::unique_ptr<CollectiveForm>> forms;
  forms.push_back(std::make_unique<FabricCollective>());
  forms.push_back(std::make_unique<KneeCollective>());
  return forms;
}

}  // namespace

std::vector<double> port_bytes(OpKind kind, Algorithm algorithm, double bytes,
                               const GroupShape& group) {
  std::vector<double> out(group.members.size(), 0.0);
  const auto size = static_cast<double>(group.size);
  if (size <= 1) {
    return out;
  }
  const double passes = kind == OpKind::kAllReduce ? 2 : 1;
  std::size_t outermost = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (members_at(group, i) > members_below(group, i)) {
      outermost = i;
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double below = members_below(group, i);
    const double at = members_at(group, i);
    if (below >= size) {
      break;  // the group lies inside one unit of the level below
    }
    switch (kind) {
      case OpKind::kAllReduce:
      case OpKind::kAllGather:
      case OpKind::kReduceScatter:
        if (algorithm == Algorithm::kRing) {
          const double inner = at >= size ? 1.0 : (at - 1) / at;
          out[i] = passes * bytes * (size - 1) / size * (i == 0 ? inner : 1 / below);
        } else if (algorithm == Algorithm::kInSwitch && i == 0) {
          out[i] = bytes * (at + 1) / at;
        } else {
          out[i] = passes * bytes * (at - below) / (below * at);
        }
        break;
      case OpKind::kAllToAll:
      case OpKind::kAllToAllV:
        out[i] = i == 0 ? bytes * (at - 1) / size : bytes * (size - below) / size;
        break;
      case OpKind::kBroadcast:
        out[i] = bytes / below;  // one channel per member of the unit below
        break;
      case OpKind::kSend:
      case OpKind::kRecv:
        out[i] = i == outermost ? bytes : 0;
        break;
      default:
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
  const double active = std::clamp(members_below(group, level) * siblings, 1.0, devices);
  return std::min(port, port / std::max(1.0, fabric.oversubscription) * devices / active);
}

std::vector<Constant> FabricCollective::constants(const System& system) const {
  return {{"start", system.device.launch.base(), 8e-6, 1e-7, 1e-3},
          {"latency", 1, 0.5, 0.01, 20},  // factor on the fabric's hop latencies
          {"peer", 0, 1e-6, 1e-9, 1e-4},  // per peer message of an all-to-all
          {"ring", 1, 0.8, 0.05, 1},
          {"hierarchical", 1, 0.7, 0.05, 1},
          {"in_switch", 1, 0.7, 0.05, 1},
          {"ramp", 0, 2e-5, 1e-9, 1e-2},
          {"ramp_bytes", 1e6, 1e6, 1e3, 1e9}};
}

Prediction FabricCollective::predict(OpKind kind, double bytes, const GroupShape& group,
                                     const System& system, std::span<const double> c) const {
  Prediction best;
  if (group.size <= 1) {
    return best;
  }
  best.time = Seconds(std::numeric_limits<double>::infinity());
  const double ramp = kind == OpKind::kBarrier ? 0 : c[kRamp] * saturating(bytes, c[kRampBytes]);
  for (const Algorithm a : candidates(kind, group, system)) {
    const double efficiency = a == Algorithm::kHierarchical ? c[kHierarchical]
                              : a == Algorithm::kInSwitch   ? c[kInSwitch]
                                                            : c[kRing];
    const bool personalised = kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV;
    double latency = 0;
    if (personalised || kind == OpKind::kSend || kind == OpKind::kRecv) {
      latency = outermost_latency(system, group) * c[kLatency];
      latency += personalised ? static_cast<double>(group.size - 1) * c[kPeer] : 0;
    } else {
      const double passes = kind == OpKind::kAllReduce || kind == OpKind::kBarrier ? 2 : 1;
      latency = passes * hop_latency(system, group, a == Algorithm::kRing) * c[kLatency];
    }
    const std::vector<double> ports = port_bytes(kind, a, bytes, group);
    const Seconds link(slowest_port(ports, group, system, efficiency) + ramp);
    const Seconds overhead(c[kStart] + latency);
    if (overhead + link < best.time) {
      best.time = overhead + link;
      best.memory = link;
      best.overhead = overhead;
      best.bound = link > overhead ? "link" : "latency";
      best.algorithm = algorithm_name(a);
    }
  }
  return best;
}

Seconds FabricCollective::exchange(std::span<const double> level_bytes, double, double peers,
                                   const GroupShape& group, const System& system,
                                   std::span<const double> c) const {
  double total = 0;
  for (const double b : level_bytes) {
    total = std::max(total, b);
  }
  const double latency =
      peers > 0 ? outermost_latency(system, group) * c[kLatency] + peers * c[kPeer] : 0;
  return Seconds(c[kStart] + latency + slowest_port(level_bytes, group, system, c[kRing]) +
                 c[kRamp] * saturating(total, c[kRampBytes]));
}

std::vector<Constant> KneeCollective::constants(const System& system) const {
  const double bandwidth =
      system.fabric.empty() ? 1e9 : std::max(system.fabric[0].bandwidth.base(), 1e3);
  const double latency = system.fabric.empty() ? 0 : system.fabric[0].latency.base();
  return {{"start", latency, 1e-6, 1e-8, 1e-2},
          {"member", 0, 5e-7, 1e-9, 1e-2},
          {"near", bandwidth, bandwidth, bandwidth / 100, bandwidth * 100},
          {"far", bandwidth, bandwidth / 2, bandwidth / 1000, bandwidth * 10},
          {"capacity", 1e9, 2e6, 1e5, 1e9},
          {"rendezvous", 0, 2e-6, 1e-9, 1e-2},
          {"threshold", 4e3, 8e3, 256, 1e6},
          {"self", 0, 2e-10, 1e-13, 1e-8}};
}

Prediction KneeCollective::predict(OpKind kind, double bytes, const GroupShape& group,
                                   const System&, std::span<const double> c) const {
  Prediction p;
  if (group.size <= 1) {
    return p;
  }
  const auto n = static_cast<double>(group.size);
  p.overhead = Seconds(c[kKneeStart] + (n - 1) * c[kMember]);
  if (kind != OpKind::kBarrier) {
    const double x = (bytes / c[kThreshold]) * (bytes / c[kThreshold]);
    const double kept = bytes - moved_bytes(OpKind::kAllToAll, bytes, n);
    const bool copies_own =
        kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV || kind == OpKind::kAllGather;
    p.memory = Seconds(moved_bytes(kind, bytes, n) *
                           seconds_per_byte(bytes, c[kNear], c[kFar], c[kCapacity]) +
                       c[kRendezvous] * x / (1 + x) + (copies_own ? kept * c[kSelf] : 0));
  }
  p.time = p.overhead + p.memory;
  p.bound = p.memory > p.overhead ? "link" : "latency";
  p.algorithm = "message passing";
  return p;
}

Seconds KneeCollective::exchange(std::span<const double> level_bytes, double kept, double peers,
                                 const GroupShape& group, const System&,
                                 std::span<const double> c) const {
  double moved = 0;
  for (const double b : level_bytes) {
    moved = std::max(moved, b);
  }
  const double n = static_cast<double>(std::max<std::int64_t>(group.size, 2));
  const double bytes = moved * n / (n - 1);  // the buffer of an equal exchange that moves as much
  const double x = (bytes / c[kThreshold]) * (bytes / c[kThreshold]);
  return Seconds(c[kKneeStart] + peers * c[kMember] +
                 moved * seconds_per_byte(bytes, c[kNear], c[kFar], c[kCapacity]) +
                 c[kRendezvous] * x / (1 + x) + kept * c[kSelf]);
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
  if (kind == OpKind::kRecv) {
    keys.emplace_back("send");
  } else if (kind == OpKind::kAllToAllV) {
    keys.emplace_back("all_to_all");
  }
  keys.emplace_back("collective");
  return keys;
}

}  // namespace stepcast::models
