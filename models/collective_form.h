#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/op.h"
#include "core/system.h"
#include "models/cost_model.h"
#include "models/kernel_form.h"

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
};

/// From the fabric: for each level, bytes through one device's port over what that port sustains,
/// levels pipelined (maximum over levels).
///
///   time = start + hop latencies + max over levels of bytes_level / (bandwidth_level * efficiency)
///   + ramp * bytes / (bytes + ramp_bytes)
///
/// With m_i members of the group per unit of level i (L = m_0), G = size, S = bytes
/// (kernels-and-collectives section 3.3):
///   ring          level 0: S (G-1)(L-1)/(G L) (S (G-1)/G when one unit holds the group); level i:
///   S (G-1)/(G m_{i-1}) hierarchical  level i: S (m_i - m_{i-1}) / (m_{i-1} m_i), the lower bound
///   of any algorithm without reduction in the switch in-switch     level 0 of an all-reduce: S
///   (L+1)/L (reduce by load, store by multicast); higher levels as hierarchical all-to-all level
///   0: S (L-1)/G; level i: S (G - m_{i-1})/G, no division by L
/// all-reduce = twice the reduce-scatter; the algorithm of smallest predicted time answers and is
/// named. Oversubscription: the uplinks of a unit carry bandwidth / oversubscription per device,
/// shared by the members and sibling groups active in that unit. Valid:   any size, any group.
/// Below 32 MB across nodes there is little data to check against: trust it less there. Source:
/// derived in the reference; ring: Patarasuk & Yuan, JPDC 69(2), 2009. Checked by
/// tests/models/collective_test.cpp.
class FabricCollective final : public CollectiveForm {
 public:
  std::string_view name() const override { return "collective.fabric"; }
  std::vector<Constant> constants(const System& system) const override;
  Prediction predict(OpKind kind, double bytes, const GroupShape& group, const System& system,
                     std::span<const double> c) const override;
  Seconds exchange(std::span<const double> level_bytes, double kept, double peers,
                   const GroupShape& group, const System& system,
                   std::span<const double> c) const override;
};

/// Ranks that exchange through shared memory or sockets of one machine: no ports, but protocol and
/// cache knees.
///
///   time = start + (n-1) member + volume * seconds_per_byte(bytes; near, far, capacity) +
///   rendezvous * x / (1 + x) + kept * self, x = (bytes / threshold)^2
///
/// volume = bytes moved by one rank: all-reduce 2 (n-1)/n S; all-gather, reduce-scatter, all-to-all
/// (n-1)/n S; else S. Valid:   groups of the sizes it was fitted on. Source: derived; two knees
/// (eager -> rendezvous, cache -> memory) of CPU message passing.
class KneeCollective final : public CollectiveForm {
 public:
  std::string_view name() const override { return "collective.knee"; }
  std::vector<Constant> constants(const System& system) const override;
  Prediction predict(OpKind kind, double bytes, const GroupShape& group, const System& system,
                     std::span<const double> c) const override;
  Seconds exchange(std::span<const double> level_bytes, double kept, double peers,
                   const GroupShape& group, const System& system,
                   std::span<const double> c) const override;
};

/// The first answers where nothing was fitted.
const std::vector<std::unique_ptr<CollectiveForm>>& builtin_collective_forms();
const CollectiveForm* collective_form_named(std::string_view name);

enum class Algorithm : std::uint8_t { kRing, kHierarchical, kInSwitch, kDirect };
/// Bytes through one device's port at each level of the system's fabric, by the table above.
std::vector<double> port_bytes(OpKind kind, Algorithm algorithm, double bytes,
                               const GroupShape& group);
/// What one member's port sustains at a level when the group and its siblings are active.
double port_bandwidth(const System& system, const GroupShape& group, std::size_t level);

/// End of each rank of a personalised exchange in bytes through its ports: flows of a port share it
/// equally until each is done, a rank ends with its last flow. Row-major `send`, row = sender.
/// Returns [rank * levels + level]; a pair without bytes imposes nothing.
std::vector<double> exchange_port_bytes(std::span<const double> send,
                                        std::span<const std::int32_t> ranks, const System& system);

/// Keys of a collective in FittedModels, most specific first: "all_to_all_v.int64" (what is
/// exchanged decides what the receiver does with it), "all_to_all_v", "all_to_all", "collective".
/// fp32 needs no suffix.
std::vector<std::string> collective_keys(OpKind kind, Format format);

}  // namespace stepcast::models
