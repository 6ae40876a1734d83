#include <algorithm>
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
  kRampBytes,
  kCover,
  kSwitch
};

std::string_view algorithm_name(Algorithm a) {
  switch (a) {
    case Algorithm::kRing:
      return "ring, pipelined over levels";
    case Algorithm::kHierarchical:
      return "hierarchical, pipelined over levels";
    case Algorithm::kInSwitch:
      return "reduction in the switch";
    case Algorithm::kAggregatedTrees:
      return "parallel aggregated trees";
    case Algorithm::kDirect:
      return "direct";
  }
  return "";
}

double latency_of(const System& system, std::size_t level, double outer) {
  return system.fabric[level].latency.base() * (level == 0 ? 1 : outer);
}

double path_latency(const System& system, const GroupShape& group, Algorithm algorithm,
                    double outer) {
  const std::vector<double> hops = path_hops(algorithm, group, system);
  double latency = 0;
  for (std::size_t i = 0; i < hops.size(); ++i) {
    latency += latency_of(system, i, outer) * hops[i];
  }
  return latency;
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

/// Steps of the bandwidth protocol that show beside `link`, the time of the wire: while a chunk is
/// longer on it than a step waits, the next is already under way. Their sum with `link` grows with
/// either for any cover from 0.65 on.
double shown_steps(double steps, double link, double cover) {
  const double covered = steps > 0 ? link / (cover * steps) : 0;
  return steps / (1 + covered * covered);
}

/// Time of a collective: `latency` before any byte moves, `protocol` grows with the chunk.
struct Parts {
  double latency = 0;
  double protocol = 0;
  double link = 0;
  [[nodiscard]] Seconds time() const { return Seconds(latency + protocol + link); }
};
Parts parts_of(double latency, double steps, double chunk, Seconds link,
               std::span<const double> c) {
  return {
      latency,
      latency * c[kWide] * step_at(chunk / c[kWideBytes]) +
          shown_steps(c[kBulk] * steps, link.base(), c[kCover]) * step_at(chunk / c[kBulkBytes]) +
          c[kRamp] * saturating(chunk, c[kRampBytes]),
      link.base()};
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
          {"in_switch", 1, 0.55, 0.05, 1},
          {"ramp", 0, 2e-5, 1e-9, 1e-2},
          {"ramp_bytes", 4e6, 4e6, 1e4, 1e9},
          {"cover", 2, 2, 0.7, 12},
          {"switch", 0, 4e-5, 1e-7, 1e-3}};
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
      steps = passes * path_latency(system, group, a, c[kOuter]);
      first = steps * c[kLatency] + (a == Algorithm::kInSwitch ? c[kSwitch] : 0);
    }
    const bool tree = a == Algorithm::kHierarchical || a == Algorithm::kAggregatedTrees;
    const bool of_unit = a == Algorithm::kHierarchical || a == Algorithm::kInSwitch;
    const double parts_in_buffer =
        whole ? 1 : static_cast<double>(of_unit ? group.members[0] : group.size);
    const double chunk = kind == OpKind::kBarrier ? 0 : bytes / parts_in_buffer;
    const double efficiency = tree                        ? c[kHierarchical]
                              : a == Algorithm::kInSwitch ? c[kInSwitch]
                                                          : c[kRing];
    const Seconds link =
        slowest_port(port_bytes(kind, a, bytes, group, system), group, system, efficiency) *
        (in_turn && !whole ? 1 + c[kOwn] / peers : 1);
    const Parts parts = parts_of(c[kStart] + first, steps, chunk, link, c);
    if (parts.time() < best.time) {
      best.time = parts.time();
      best.memory = Seconds(parts.link + parts.protocol);
      best.overhead = Seconds(parts.latency);
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
  const Seconds link = slowest_port(level_bytes, group, system, c[kRing]) *
                       (moved > 0 ? 1 + c[kOwn] * kept / moved : 1);
  return parts_of(c[kStart] + latency.outermost * c[kLatency] + peers * c[kPeer],
                  share * latency.all, moved / peers, link, c)
      .time();
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
