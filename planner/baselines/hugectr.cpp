#include "planner/baselines/methods.h"
#include "workloads/embedding_plan.h"
#include "workloads/embedding_plan_hugectr.h"

namespace stepcast::planner {
namespace {

/// HugeCTR's published MLPerf settings for several machines; those for one are the rule's defaults.
constexpr double kMemoryOverLink = 67;
constexpr double kReplicatedMegabytes = 12.5;

}  // namespace

/// HugeCTR's automatic sharding (workloads/embedding_plan_hugectr.h): over devices on one machine
/// (`auto`), over machines on several (`hier_auto`).
BaselinePlan hugectr_plan(const Job& job, const models::CostModel&, std::uint64_t) {
  const std::int64_t node = workloads::node_size(job);
  const bool several = node > 1 && node < job.devices && job.devices % node == 0;
  workloads::HugeCtrRule rule;
  if (several) {
    rule.replicated_below = MB(kReplicatedMegabytes);
    rule.memory_over_link = kMemoryOverLink;
    rule.members = node;
  }
  return {workloads::hugectr_plan(job, rule), several ? "hier_auto" : "auto"};
}

}  // namespace stepcast::planner
