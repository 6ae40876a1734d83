#include "planner/baselines/methods.h"
#include "workloads/embedding_plan/plan_hugectr.h"

namespace stepcast::planner {

/// HugeCTR's automatic sharding (workloads/embedding_plan/plan_hugectr.h): over devices on one
/// machine
/// (`auto`), over machines on several (`hier_auto`).
BaselinePlan hugectr_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  const workloads::HugeCtrRule rule = workloads::hugectr_rule(job);
  return {workloads::hugectr_plan(job, rule), rule.members > 1 ? "hier_auto" : "auto"};
}

}  // namespace stepcast::planner
