#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/collective_schedule.h"
#include "core/graph/program_fwd.h"
#include "core/system.h"
#include "models/cost_model.h"
#include "models/kernels/kernel_form.h"

namespace stepcast::models {

/// An analytical form of collectives on a group. `bytes` follows the NCCL convention of the op:
/// all-reduce the buffer, all-gather the gathered output, reduce-scatter the input, all-to-all one
/// rank's send buffer, broadcast, send and recv the message. Every form is monotone and continuous
/// in bytes for any constants within their bounds.
class CollectiveForm {
 public:
  virtual ~CollectiveForm() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::vector<Constant> constants(const System& system) const = 0;
  [[nodiscard]] virtual Prediction predict(OpKind kind, double bytes, const GroupShape& group,
                                           const System& system,
                                           std::span<const double> c) const = 0;
  /// Personalised exchange of one rank: `level_bytes[i]` through its port of level i, `kept` stay
  /// on the rank.
  [[nodiscard]] virtual Seconds exchange(std::span<const double> level_bytes, double kept,
                                         double peers, const GroupShape& group,
                                         const System& system, std::span<const double> c) const = 0;
  /// Extra cost of a collective when its communicator was not used for a while: buffers and
  /// code have left the caches. Monotone in both; 0 for a time below 0 (not known).
  [[nodiscard]] virtual Seconds after_rest(double, Seconds, std::span<const double>) const {
    return {};
  }
  /// True if constants of some kinds inform the others. Then a fit also writes
  /// "collective".
  [[nodiscard]] virtual bool serves_other_kinds() const { return false; }
  /// True if its constants are shares of the links' peak rates.
  [[nodiscard]] virtual bool of_links() const { return false; }
  /// Time that no constants and no residual may undercut; 0 where the fabric is not described.
  [[nodiscard]] virtual Seconds limit(OpKind, double, const GroupShape&, const System&) const {
    return {};
  }
  [[nodiscard]] virtual Seconds exchange_limit(std::span<const double>, const GroupShape&,
                                               const System&) const {
    return {};
  }
};

/// From the fabric. A collective of n ranks costs what its messages' latencies add up to, and what
/// its bytes need at the slowest port; protocols move the first part up in smooth steps.
///
///   time = (start + latency * hops + peer * (n-1) + switch) * (1 + wide * s(chunk / wide_bytes))
///        + bulk * hops * s(chunk / bulk_bytes) / (1 + (wire / (cover * bulk * hops))^2)
///        + ramp * chunk / (chunk + ramp_bytes)
///        + wire
///   wire = (1 + own / (n-1)) * max over levels of bytes_level / (bandwidth_level * efficiency)
///   s(x) = x^2 / (1 + x^2),  chunk = bytes / n; of a tree or a switch, whose pieces do not shrink
///   with the number of units, bytes / m_0
///
/// - hops: path_hops() of the schedule, each with the latency of the link it crosses. An exchange
/// has
///   its outermost link once, and in its bulk one link to each peer. All-reduce makes two passes.
///   `outer` multiplies the latencies of all levels but the innermost, which a data sheet rarely
///   gives.
/// - wide: share by which latency grows once messages are spread over all channels and threads.
/// - bulk: latencies a hop adds when flags in the data (LL, LL128) give way to the bandwidth
///   (Simple) protocol; `cover`: multiple of their sum from which the wire hides half of them and
///   more, as the next part of a large chunk is under way while the last one waits.
/// - switch: setting up an algorithm of the switch.
/// - own: share of one chunk's transfer that a rank's own part costs (ring, direct).
/// - ramp: pipeline filling of large messages.
/// - ring, hierarchical, in_switch: share of the port each algorithm sustains, at most 1;
///   aggregated trees that of the hierarchical one.
///
/// Bytes: port_bytes() of the schedule (core/graph/collective_schedule.h). The levels are pipelined
/// (maximum); the algorithm of
/// smallest predicted time answers and is named. Oversubscription: the uplinks of a unit carry
/// bandwidth / oversubscription per device, shared by members and sibling groups active in it.
/// More bandwidth or less latency of any level is never slower, whatever the constants.
///
/// Valid:   any size, any group. Ideal values give the bound from hardware facts. Below 32 MB
///          across nodes there are no data to check against: trust it less there.
/// Source:  byte counts derived in the reference; ring: Patarasuk & Yuan, JPDC 69(2), 2009;
///          hops by the link they cross, and which algorithm may serve a group: NVIDIA/nccl
///          src/graph/tuning.cc; aggregated trees (PAT): Jeaugey, arXiv 2506.20252; protocols: the
///          knees of measured NCCL curves; reduction between machines: Graham et al., "Scalable
///          Hierarchical Aggregation Protocol (SHArP)", COMHPC 2016.
/// Checked: tests/models/collective_test.cpp, transfer_test.cpp.
class FabricCollective final : public CollectiveForm {
 public:
  std::string_view name() const override { return "collective.fabric"; }
  bool serves_other_kinds() const override { return true; }
  bool of_links() const override { return true; }
  std::vector<Constant> constants(const System& system) const override;
  Prediction predict(OpKind kind, double bytes, const GroupShape& group, const System& system,
                     std::span<const double> c) const override;
  Seconds exchange(std::span<const double> level_bytes, double kept, double peers,
                   const GroupShape& group, const System& system,
                   std::span<const double> c) const override;
  Seconds limit(OpKind kind, double bytes, const GroupShape& group,
                const System& system) const override;
  Seconds exchange_limit(std::span<const double> level_bytes, const GroupShape& group,
                         const System& system) const override;
};

/// Ranks that exchange through shared memory or sockets of one machine: no ports, but protocol and
/// cache knees.
///
///   time = start + (n-1) member + volume * seconds_per_byte(bytes; near, far, capacity)
///        + rendezvous * x / (1 + x) + kept * self, x = (bytes / threshold)^2
///   after a rest of t:
///        + (cold + cold_byte * bytes / (1 + bytes / capacity)) * t / (t + cold_after)
///
/// volume = bytes moved by one rank: all-reduce 2 (n-1)/n S; all-gather, reduce-scatter, all-to-all
/// (n-1)/n S; else S.
/// Valid:   groups of the sizes it was fitted on.
/// Source:  derived; two knees (eager -> rendezvous, cache -> memory) of CPU message passing.
class KneeCollective final : public CollectiveForm {
 public:
  std::string_view name() const override { return "collective.knee"; }
  std::vector<Constant> constants(const System& system) const override;
  Prediction predict(OpKind kind, double bytes, const GroupShape& group, const System& system,
                     std::span<const double> c) const override;
  Seconds exchange(std::span<const double> level_bytes, double kept, double peers,
                   const GroupShape& group, const System& system,
                   std::span<const double> c) const override;
  Seconds after_rest(double bytes, Seconds idle_time, std::span<const double> c) const override;
};

/// The first answers where nothing was fitted.
const std::vector<std::unique_ptr<CollectiveForm>>& builtin_collective_forms();
const CollectiveForm* collective_form_named(std::string_view name);

/// Time at the slowest port; `bytes` per level, each port at this share of its bandwidth.
Seconds slowest_port(std::span<const double> bytes, const GroupShape& group, const System& system,
                     double efficiency);
/// The least over algorithms of the time at the slowest port at full bandwidth: no measurement of
/// this fabric can be faster, no prediction is. Readers of measured rows reject what lies below.
Seconds physical_limit(OpKind kind, double bytes, const GroupShape& group, const System& system);
/// Bytes that one rank's ports carry in an exchange: those of level 0 and those leaving the unit.
double exchanged_bytes(std::span<const double> level_bytes);
/// Bytes that one rank moves in a symmetric collective of n ranks: all-reduce 2 (n-1)/n S;
/// all-gather, reduce-scatter, all-to-all (n-1)/n S; else S.
double moved_bytes(OpKind kind, double bytes, double n);
/// Bandwidth that one member's port sustains at a level when the group and its siblings are active.
double port_bandwidth(const System& system, const GroupShape& group, std::size_t level);

/// End of each rank of a personalised exchange in bytes through its ports: flows of a port share it
/// equally until each is done, a rank ends with its last flow. Row-major `send`, row = sender.
/// A pair without bytes imposes nothing.
struct ExchangePorts {
  std::vector<double> ends;     ///< [rank * levels + level]
  std::vector<PortUse> totals;  ///< bytes that the same ports carry in all
};
ExchangePorts exchange_ports(std::span<const double> send, std::span<const std::int32_t> ranks,
                             const System& system);

/// Keys of a collective in FittedModels, most specific first: "all_to_all_v.int64" (what is
/// exchanged decides what the receiver does with it), "all_to_all_v", "all_to_all", "collective".
/// fp32 needs no suffix.
std::vector<std::string> collective_keys(OpKind kind, Format format);

}  // namespace stepcast::models
