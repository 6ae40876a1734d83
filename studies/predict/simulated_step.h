#pragma once
#include <vector>

#include "core/graph/program.h"
#include "models/cost_model.h"
#include "simulator/reports/timeline.h"
#include "simulator/simulate.h"

namespace stepcast::studies {

/// A graph costed and simulated.
struct SimulatedStep {
  simulator::StepCosts costs;
  simulator::SimulationResult result;
  [[nodiscard]] const simulator::RankSummary& critical() const {
    return result.ranks.at(result.critical);
  }
};

/// Prices a graph on the model's system and simulates one step, whose spans go to `observer`.
/// Without `host_cost` issuing ops costs nothing.
SimulatedStep simulate_step(const ExecutionGraph& graph, const models::CostModel& model,
                            Observer* observer = nullptr, bool host_cost = true);

/// A graph and its step.
struct BuiltStep {
  ExecutionGraph graph;
  SimulatedStep step;
};

/// Time and wait of one op template, summed over the executions on one rank.
struct TemplateTime {
  std::int64_t executions = 0;
  Seconds time;  ///< collectives: transfer only
  Seconds wait;  ///< collectives: waiting for other members
};
/// By op template of the rank's program.
std::vector<TemplateTime> template_times(const simulator::Timeline& timeline,
                                         const Program& program, std::int32_t rank,
                                         const simulator::Repetition& repetition = {});

/// Row of a table that an op belongs to: its kind, or its name and phase.
std::string row_name(const Program& program, const Op& op, bool by_name);

}  // namespace stepcast::studies
