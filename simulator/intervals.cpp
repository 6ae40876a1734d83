#include "simulator/intervals.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/graph/program.h"
#include "core/statistics.h"
#include "simulator/random.h"

namespace stepcast::simulator {
namespace {

constexpr std::uint64_t kModel = 1ULL << 62;  // draws per model, apart from those per op

void perturb(const StepCosts& costs, const IntervalOptions& options, std::uint64_t sample,
             StepCosts& out) {
  const double half = std::sqrt(0.5);
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const OpCosts& row = costs.ops[i];
    // Instances of one program share the draw: they run the same kernels.
    const auto program = static_cast<std::uint64_t>(costs.folding.instances[i].program);
    for (std::size_t o = 0; o < row.ticks.size(); ++o) {
      if (row.log_sigma[o] > 0) {
        const auto model = static_cast<std::uint64_t>(row.model[o] + 1);
        const double z = half * normal_at(options.seed, sample, kModel + model) +
                         half * normal_at(options.seed, sample, (program << 32) + o);
        out.ops[i].ticks[o] = std::llround(static_cast<double>(row.ticks[o]) *
                                           std::exp(static_cast<double>(row.log_sigma[o]) * z));
      }
    }
  }
}

}  // namespace

StepInterval step_interval(const ExecutionGraph& graph, const StepCosts& costs,
                           const IntervalOptions& options) {
  StepCosts sampled = costs;
  std::vector<double> steps;
  for (int s = 0; s < options.samples; ++s) {
    perturb(costs, options, static_cast<std::uint64_t>(s), sampled);
    steps.push_back(to_seconds(simulate(graph, sampled).makespan).base());
  }
  std::sort(steps.begin(), steps.end());
  const auto quantile = [&](double q) { return Seconds(interpolated_quantile(steps, q)); };
  return {quantile(0.05), quantile(0.5), quantile(0.95)};
}

}  // namespace stepcast::simulator
