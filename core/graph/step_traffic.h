#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/link_traffic.h"
#include "core/graph/op_enums.h"
#include "core/graph/program_fwd.h"

namespace stepcast {

constexpr std::size_t kTrafficKinds = static_cast<std::size_t>(TrafficKind::kCount);
std::string_view name_of(TrafficKind kind);

/// Bytes that cross each level of the fabric in one step, all ranks together: each message once,
/// where its sender sends it.
struct StepTraffic {
  std::vector<std::string> levels;
  std::array<std::vector<double>, kTrafficKinds> bytes;  ///< by kind and level
  explicit StepTraffic(const LinkLevels& of = LinkLevels({}));
  [[nodiscard]] double total(TrafficKind kind) const;
  [[nodiscard]] double at(TrafficKind kind, std::size_t level) const {
    return bytes[static_cast<std::size_t>(kind)][level];
  }
  /// Bytes of the embedding exchanges: ids, outputs and gradients.
  [[nodiscard]] double exchanged(std::size_t level) const;
};

/// Bytes that a graph expects to send: reductions and gathers by their rounds, all-to-alls pair by
/// pair; parts of an all-to-all-v are expected values. `real_bytes` > 0: of every
/// floating point element, as a backend without short formats moves them.
StepTraffic expected_traffic(const ExecutionGraph& graph, const LinkLevels& levels,
                             double real_bytes = 0);

}  // namespace stepcast
