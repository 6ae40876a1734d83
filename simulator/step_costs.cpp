#include "simulator/step_costs.h"

#include <utility>

#include "core/error.h"
#include "core/graph/op.h"
#include "core/graph/program.h"

namespace stepcast::simulator {

void reject_longer(std::string_view what, Seconds time) {
  throw InputError(what,
                   fmt::format("takes {:.3g} days, and a step of more than {:.0f} days cannot "
                               "be simulated; check the rates of system.device and "
                               "system.fabric, or make the batch smaller",
                               time.base() / 86400, kLongestStep.base() / 86400));
}

StepCosts blank_costs(const ExecutionGraph& graph, bool unfold) {
  StepCosts costs;
  costs.folding = fold(graph, unfold);
  costs.paths = {{LevelUse{}}};
  for (const Instance& instance : costs.folding.instances) {
    const Program& program = graph.programs[static_cast<std::size_t>(instance.program)];
    const std::size_t n = program.ops.size();
    OpCosts row{.ticks = std::vector<std::int64_t>(n, 0),
                .model = std::vector<std::int32_t>(n, -1),
                .log_sigma = std::vector<float>(n, 0),
                .issue = {},
                .latency = {},
                .delay = {},
                .link_share = std::vector<float>(n, 0),
                .path = std::vector<std::int32_t>(n, -1),
                .needs = std::vector<std::int32_t>(n, -1),
                .reason = {}};
    for (std::size_t o = 0; o < n; ++o) {
      if (is_collective(program.ops[o].kind)) {
        row.path[o] = 0;
        row.link_share[o] = 1;
      }
    }
    costs.ops.push_back(std::move(row));
  }
  return costs;
}

}  // namespace stepcast::simulator
