#include <algorithm>

#include "core/graph/op_traits.h"
#include "models/collectives/collective_form.h"
#include "models/kernels/memory_bound.h"

namespace stepcast::models {
namespace {

enum KneeConstant {
  kKneeStart,
  kMember,
  kNear,
  kFar,
  kCapacity,
  kRendezvous,
  kThreshold,
  kSelf,
  kCold,
  kColdByte,
  kColdAfter
};

}  // namespace

std::vector<Constant> KneeCollective::constants(const System& system) const {
  const double bandwidth =
      system.fabric.empty() ? 1e9 : std::max(system.fabric[0].bandwidth.base(), 1e3);
  const double latency = system.fabric.empty() ? 0 : system.fabric[0].latency.base();
  return {{"start", latency, 5e-7, 1e-8, 1e-2},
          {"member", 0, 5e-7, 1e-9, 1e-2},
          {"near", bandwidth, bandwidth, bandwidth / 100, bandwidth * 100},
          {"far", bandwidth, bandwidth / 2, bandwidth / 1000, bandwidth * 10},
          {"capacity", 1e9, 2e6, 1e5, 1e9},
          {"rendezvous", 0, 4e-6, 1e-9, 1e-2},
          {"threshold", 4e3, 5e3, 256, 1e6},
          {"self", 0, 2e-10, 1e-13, 1e-8},
          {"cold", 0, 1e-5, 1e-9, 1e-3},
          {"cold_byte", 0, 2e-11, 1e-14, 1e-9},
          {"cold_after", 1e-3, 1e-3, 1e-5, 0.1}};
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
    const bool copies_own = is_exchange(kind) || kind == OpKind::kAllGather;
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

Seconds KneeCollective::after_rest(double bytes, Seconds idle_time,
                                   std::span<const double> c) const {
  if (idle_time <= Seconds{}) {
    return {};
  }
  const double cold = c[kCold] + c[kColdByte] * bytes / (1 + bytes / c[kCapacity]);
  return Seconds(cold * idle_time.base() / (idle_time.base() + c[kColdAfter]));
}

}  // namespace stepcast::models
