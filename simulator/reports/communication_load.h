#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/program.h"
#include "simulator/reports/timeline.h"
#include "simulator/step_costs.h"

namespace stepcast::simulator {

/// What one rank moves: by communicator, and by fabric level of its own links.
struct CommunicationLoad {
  struct Row {
    std::string name;
    std::uint64_t count = 0;
    double bytes = 0;    ///< sum of the collectives' buffers
    SimTime transfer{};  ///< ticks in which a transfer was in flight (overlaps counted once)
    SimTime wait{};
    double utilization = 0;  ///< transfer / step
  };
  std::vector<Row> communicators;
  std::vector<Row> levels;  ///< a transfer counts on every level it uses; names "level 0", ...
};

CommunicationLoad communication_load(const ExecutionGraph& graph, const StepCosts& costs,
                                     const Timeline& timeline, std::int32_t rank, SimTime step);
std::string text(const CommunicationLoad& load);

}  // namespace stepcast::simulator
