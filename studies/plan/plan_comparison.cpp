#include "studies/plan/plan_comparison.h"

#include <algorithm>

#include "planner/baselines/baselines.h"
#include "planner/embedding/embedding_planner.h"
#include "planner/embedding/ledger.h"
#include "workloads/embedding_plan/plan.h"

namespace stepcast::studies {

std::vector<ProposedPlan> proposed_plans(const Job& job, const models::CostModel& model,
                                         const PlanOptions& options) {
  const auto now = [&options] { return options.clock ? options.clock() : 0.0; };
  std::vector<ProposedPlan> all;
  const auto add = [&](std::string name, std::optional<EmbeddingPlan> plan, double seconds,
                       std::string remark) {
    ProposedPlan& proposed = all.emplace_back();
    ComparedPlan& row = proposed.row;
    row.name = std::move(name);
    row.seconds = seconds;
    row.remark = std::move(remark);
    row.made = plan.has_value();
    row.fits = false;
    if (plan) {
      plan->sync_interval = job.sync_interval > 1 ? job.sync_interval : 0;
      plan->dedup = job.embedding_dedup;
      plan->ledger = planner::ledger_of(job, *plan);
      for (const LedgerLine& line : plan->ledger) {
        row.fullest_bytes =
            line.tier == "hbm" ? std::max(row.fullest_bytes, line.total()) : row.fullest_bytes;
      }
      row.fits = !planner::excess_of(job, *plan, plan->ledger);
      proposed.plan = std::move(plan);
    }
  };
  double begin = now();
  EmbeddingPlan rule = workloads::make_embedding_plan(job, "auto");
  add("auto", std::move(rule), now() - begin, "the rule that predict uses without a plan");
  for (const planner::Baseline& baseline : planner::baselines()) {
    begin = now();
    planner::BaselinePlan made = baseline.make(job);
    add(std::string(baseline.name), std::move(made.plan), now() - begin, std::move(made.remark));
    all.back().rival = baseline.rival;
  }
  std::vector<const EmbeddingPlan*> plans;
  for (const ProposedPlan& p : all) {
    if (p.plan) {
      plans.push_back(&*p.plan);
    }
  }
  const planner::PlanPricer prices(job, model, std::move(plans));
  for (ProposedPlan& p : all) {
    p.row.objective = p.plan ? prices.objective(*p.plan) : std::nullopt;
  }
  return all;
}

}  // namespace stepcast::studies
