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
  /// Spans of the ranks that the first rounds say to account for, if the step had to be simulated
  /// whole.
  simulator::Timeline spans = {};
  std::vector<std::int32_t> followed = {};  ///< these ranks
  [[nodiscard]] const simulator::RankSummary& critical() const {
    return result.ranks.at(result.critical);
  }
};

/// Prices a graph on the model's system and simulates one step, whose spans go to `observer`.
SimulatedStep simulate_step(const ExecutionGraph& graph, const models::CostModel& model,
                            Observer* observer = nullptr);
/// The same, with the spans of the ranks that a prediction accounts for. Without `host_cost` issuing ops costs
/// nothing.
SimulatedStep simulate_account(const ExecutionGraph& graph, const models::CostModel& model,
                               bool host_cost = true);
/// Ranks that it accounts for: the critical one, and those that may wait least, if they are busier:
/// that of the shortest waits in collectives, of which overlapped ones may be no waits of the rank,
/// and that which computes longest.
std::vector<std::int32_t> accounted(const simulator::SimulationResult& result);

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
