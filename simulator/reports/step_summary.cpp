#include "simulator/reports/step_summary.h"

#include <fmt/format.h>

#include <algorithm>

namespace stepcast::simulator {

StepSummary summarize(const SimulationResult& result) {
  StepSummary summary;
  summary.step = to_seconds(result.makespan);
  summary.ops = result.ops;
  double sum = 0;
  double slowest = 0;
  double ranks = 0;
  for (const RankSummary& r : result.ranks) {
    const Seconds compute = to_seconds(r.compute);
    summary.ranks.push_back({.rank = r.rank,
                             .ranks = r.ranks,
                             .end = to_seconds(r.end),
                             .compute = compute,
                             .transfer = to_seconds(r.transfer),
                             .wait = to_seconds(r.wait),
                             .busy = summary.step.base() > 0 ? compute / summary.step : 0});
    sum += compute.base() * r.ranks;
    slowest = std::max(slowest, compute.base());
    ranks += r.ranks;
  }
  if (!result.ranks.empty()) {
    summary.critical_rank = result.ranks[result.critical].rank;
  }
  summary.imbalance = sum > 0 ? slowest / (sum / ranks) - 1 : 0;
  return summary;
}

std::string text(const StepSummary& summary) {
  std::string out =
      fmt::format("step {:.3f} ms, ended by rank {}, imbalance {:.1f} %\n",
                  summary.step / milliseconds(1), summary.critical_rank, 100 * summary.imbalance);
  out += fmt::format("{:>6} {:>6} {:>12} {:>12} {:>12} {:>7}\n", "rank", "alike", "compute ms",
                     "transfer ms", "wait ms", "busy");
  for (const auto& r : summary.ranks) {
    out += fmt::format("{:>6} {:>6} {:>12.3f} {:>12.3f} {:>12.3f} {:>5.1f} %\n", r.rank, r.ranks,
                       r.compute / milliseconds(1), r.transfer / milliseconds(1),
                       r.wait / milliseconds(1), 100 * r.busy);
  }
  return out;
}

}  // namespace stepcast::simulator
