#include "planner/baselines/baselines.h"

#include <fmt/format.h>

#include "planner/baselines/table_wise.h"
#include "planner/baselines/torchrec.h"
#include "workloads/embedding_plan/plan_hugectr.h"

namespace stepcast::planner {
namespace {

/// TorchRec's proposers under its own cost formulas.
BaselinePlan torchrec_plan(const Job& job, Placement (*proposed)(const PlacementProblem&)) {
  const PlacementProblem problem =
      torchrec::problem(torchrec::tables_of(*job.workload.layered()),
                        static_cast<double>(job.batch.global), torchrec::topology_of(job));
  const double work = static_cast<double>(problem.tables.size() * problem.tables.size()) *
                      static_cast<double>(problem.ranks);
  if (work > 2e8) {
    return {std::nullopt, "left out: hours at this size"};
  }
  const Placement placement = proposed(problem);
  if (placement.empty()) {
    return {std::nullopt, "found no plan that fits"};
  }
  return {
      torchrec::plan_of(job, problem, placement),
      fmt::format("own estimate {:.3f} ms", load_seconds(objective_of(problem, placement)) * 1e3)};
}

/// HugeCTR's automatic sharding: over devices on one machine (`auto`), over machines on several.
BaselinePlan hugectr_auto(const Job& job) {
  const workloads::HugeCtrRule rule = workloads::hugectr_rule(job);
  return {workloads::hugectr_plan(job, rule), rule.members > 1 ? "hier_auto" : "auto"};
}

}  // namespace

const std::vector<Baseline>& baselines() {
  static const std::vector<Baseline> all = [] {
    std::vector<Baseline> list;
    for (const WholeTableRule& rule : whole_table_rules()) {
      list.push_back({rule.name,
                      [rule](const Job& job) {
                        return BaselinePlan{rule.plan(job), ""};
                      },
                      rule.rival});
    }
    list.push_back(
        {"torchrec_greedy", [](const Job& job) { return torchrec_plan(job, torchrec::greedy); }});
    list.push_back({"torchrec_dp", [](const Job& job) {
                      return torchrec_plan(job, torchrec::dynamic_programming);
                    }});
    list.push_back({"hugectr_auto", hugectr_auto});
    return list;
  }();
  return all;
}

}  // namespace stepcast::planner
