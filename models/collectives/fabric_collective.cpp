#include <algorithm>
#include <cmath>
#include <limits>

#include "core/graph/op_traits.h"
#include "models/collectives/collective_form.h"

namespace stepcast::models {
namespace {

enum FabricConstant {
  kStart,
  kLatency,
  kOuter,
  kPeer,
  kWide,
  kWideBytes,
  kBulk,
  kBulkBytes,
  kRing,
  kOwn,
  kHierarchical,
  kInSwitch,
  kRamp,
  kRampBytes
};

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

double latency_of(const System& system, std::size_t level, double outer) {
  return system.fabric[level].latency.base() * (level == 0 ? 1 : outer);
}

/// Latencies of the links that a group's messages pass one after the other, and of the steps the
/// bandwidth protocol takes. Ring: every member in turn, and no step is faster than the slowest
/// link. Otherwise a chain inside the innermost unit and a tree, one doubling per hop, across
/// units.
struct PathLatency {
  double hops = 0;
  double steps = 0;
};
PathLatency path_latency(const System& system, const GroupShape& group, bool ring, double outer) {
  PathLatency out;
  const auto size = static_cast<double>(group.size);
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const double below = group.members_below(i);
    const auto at = static_cast<double>(group.members[i]);
    const double latency = latency_of(system, i, outer);
    out.hops += latency * (ring     ? size / below - size / at
                           : i == 0 ? at - 1
                                    : std::log2(at / below));
    if (ring && at > below) {
      out.steps = std::max(out.steps, (size - 1) * latency);
    }
  }
  out.steps = ring ? out.steps : out.hops;
  return out;
}

/// Links of an exchange: the outermost link once, and one link to each peer.
struct PeerLatency {
  double outermost = 0;
  double all = 0;
};
PeerLatency peer_latency(const System& system, const GroupShape& group, double outer) {
  PeerLatency out;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const double peers = static_cast<double>(group.members[i]) - group.members_below(i);
    if (peers > 0) {
      out.outermost = latency_of(system, i, outer);
      out.all += peers * out.outermost;
    }
  }
  return out;
}

double step_at(double x) { return x * x / (1 + x * x); }
double saturating(double x, double half) { return x <= 0 ? 0 : x / (x + half); }

/// The terms that do not depend on links: `latency` before any byte moves, `protocol` grows with
/// the chunk.
struct Overheads {
  double latency = 0;
  double protocol = 0;
};
Overheads overheads(double latency, double steps, double chunk, std::span<const double> c) {
  return {latency, latency * c[kWide] * step_at(chunk / c[kWideBytes]) +
                       c[kBulk] * steps * step_at(chunk / c[kBulkBytes]) +
                       c[kRamp] * saturating(chunk, c[kRampBytes])};
}

}  // namespace

std::vector<Constant> FabricCollective::constants(const System& system) const {
  return {{"start", system.device.launch.base(), 5e-6, 1e-7, 1e-3},
          {"latency", 1, 0.5, 0.01, 20},
          {"outer", 1, 1, 0.05, 20},
          {"peer", 0, 3e-7, 1e-9, 1e-4},
          {"wide", 0, 0.3, 1e-3, 5},
          {"wide_bytes", 4e3, 4e3, 256, 1e6},
          {"bulk", 0, 1, 1e-3, 20},
          {"bulk_bytes", 5e5, 5e5, 16e3, 1e8},
          {"ring", 1, 0.8, 0.05, 1},
          {"own", 0, 0.3, 0.01, 1},
          {"hierarchical", 1, 0.7, 0.05, 1},
          {"in_switch", 1, 0.7, 0.05, 1},
          {"ramp", 0, 2e-5, 1e-9, 1e-2},
          {"ramp_bytes", 4e6, 4e6, 1e4, 1e9}};
}

Prediction FabricCollective::predict(OpKind kind, double bytes, const GroupShape& group,
                                     const System& system, std::span<const double> c) const {
  Prediction best;
  if (group.size <= 1) {
    return best;
  }
  const double peers = static_cast<double>(group.size - 1);
  const bool whole =
      is_point_to_point(kind) || kind == OpKind::kBroadcast;  // one message, not n chunks
  const double chunk = kind == OpKind::kBarrier ? 0
                       : whole                  ? bytes
                                                : bytes / static_cast<double>(group.size);
  best.time = Seconds(std::numeric_limits<double>::infinity());
  for (const Algorithm a : algorithms(kind, group, system)) {
    const bool in_turn = a == Algorithm::kRing || a == Algorithm::kDirect;
    double first = 0;
    double steps = 0;
    if (is_exchange(kind) || is_point_to_point(kind)) {
      const PeerLatency latency = peer_latency(system, group, c[kOuter]);
      first = latency.outermost * c[kLatency] + (is_exchange(kind) ? peers * c[kPeer] : 0);
      steps = is_exchange(kind) ? latency.all : latency.outermost;
    } else {
      const double passes = kind == OpKind::kAllReduce || kind == OpKind::kBarrier ? 2 : 1;
      const PathLatency path = path_latency(system, group, a == Algorithm::kRing, c[kOuter]);
      steps = passes * path.steps;
      first = passes * path.hops * c[kLatency];
    }
    const double efficiency = a == Algorithm::kHierarchical ? c[kHierarchical]
                              : a == Algorithm::kInSwitch   ? c[kInSwitch]
                                                            : c[kRing];
    const Overheads o = overheads(c[kStart] + first, steps, chunk, c);
    const Seconds link =
        slowest_port(port_bytes(kind, a, bytes, group, system), group, system, efficiency) *
        (in_turn && !whole ? 1 + c[kOwn] / peers : 1);
    const Seconds time = Seconds(o.latency + o.protocol) + link;
    if (time < best.time) {
      best.time = time;
      best.memory = link + Seconds(o.protocol);
      best.overhead = Seconds(o.latency);
      best.bound = best.memory > best.overhead ? "link" : "latency";
      best.algorithm = algorithm_name(a);
    }
  }
  return best;
}

Seconds FabricCollective::exchange(std::span<const double> level_bytes, double kept, double peers,
                                   const GroupShape& group, const System& system,
                                   std::span<const double> c) const {
  if (peers <= 0) {
    return Seconds(c[kStart]);
  }
  const PeerLatency latency = peer_latency(system, group, c[kOuter]);
  const double share = peers / static_cast<double>(std::max<std::int64_t>(group.size - 1, 1));
  const double moved = exchanged_bytes(level_bytes);
  const Overheads o = overheads(c[kStart] + latency.outermost * c[kLatency] + peers * c[kPeer],
                                share * latency.all, moved / peers, c);
  return Seconds(o.latency + o.protocol) + slowest_port(level_bytes, group, system, c[kRing]) *
                                               (moved > 0 ? 1 + c[kOwn] * kept / moved : 1);
}

Seconds FabricCollective::limit(OpKind kind, double bytes, const GroupShape& group,
                                const System& system) const {
  return physical_limit(kind, bytes, group, system);
}

Seconds FabricCollective::exchange_limit(std::span<const double> level_bytes,
                                         const GroupShape& group, const System& system) const {
  return slowest_port(level_bytes, group, system, 1);
}

}  // namespace stepcast::models
