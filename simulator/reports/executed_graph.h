#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"
#include "simulator/reports/timeline.h"
#include "simulator/step_costs.h"

namespace stepcast::simulator {

/// The dependency graph of an executed step. Every executed op has three nodes: issued, begun,
/// ended. An edge (a, b, w) says time(b) >= time(a) + w; every node but the source is as early as
/// its edges allow.
struct ExecutedGraph {
  enum class Stage : std::uint8_t { kIssued = 0, kBegun = 1, kEnded = 2 };
  static constexpr std::uint32_t kSource = 0;  ///< time 0
  static constexpr std::uint32_t kSink = 1;    ///< end of the step

  struct Edge {
    std::uint32_t from = 0, to = 0;
    std::int64_t weight = 0;
  };
  std::vector<Edge> edges;
  std::vector<std::int64_t> time;      ///< by node, as executed
  std::vector<std::uint32_t> span_of;  ///< by executed op: index into the timeline
  std::uint64_t unexplained = 0;       ///< nodes later than their edges say; 0 is a promise

  [[nodiscard]] std::uint32_t nodes() const { return static_cast<std::uint32_t>(time.size()); }
  [[nodiscard]] static std::uint32_t node(std::uint64_t op, Stage stage) {
    return static_cast<std::uint32_t>(2 + 3 * op + static_cast<std::uint64_t>(stage));
  }
  [[nodiscard]] static std::uint64_t op_of(std::uint32_t node) { return (node - 2) / 3; }
  [[nodiscard]] static Stage stage_of(std::uint32_t node) {
    return static_cast<Stage>((node - 2) % 3);
  }
};

ExecutedGraph executed_graph(const ExecutionGraph& graph, const StepCosts& costs,
                             const Timeline& timeline);

}  // namespace stepcast::simulator
