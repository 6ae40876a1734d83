#include "studies/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "models/cost_model.h"
#include "planner/ledger.h"
#include "simulator/simulate.h"
#include "simulator/step_costs.h"
#include "studies/plan_comparison.h"
#include "workloads/build_graph.h"
#include "workloads/embedding_plan.h"
#include "workloads/embedding_plan_summary.h"

namespace stepcast::studies {

double simulated_step(const Job& job, const models::CostModel& model, const EmbeddingPlan& plan) {
  Job with = job;
  with.embedding_plan = plan;
  const ExecutionGraph graph = workloads::build_graph(with);
  const simulator::StepCosts costs = simulator::price(
      graph, model,
      {.unfold = false, .collectives_hold_core = job.system.host.collectives_hold_core});
  return to_seconds(simulator::simulate(graph, costs).makespan).base();
}

void bound_step(EmbeddingPlan& plan, double objective_bound, double rest_of_step) {
  plan.lower_bound = std::max(0.0, objective_bound + rest_of_step);
  plan.gap = plan.lower_bound > 0 ? std::max(0.0, plan.predicted_step / plan.lower_bound - 1) : 0;
}

namespace {

std::size_t anneals(PlanEffort effort) {
  return effort == PlanEffort::kQuick ? 0 : effort == PlanEffort::kNormal ? 8 : 64;
}

/// The plan of the rule `auto` joins those that are simulated, so that the answer is never slower.
void add_rule(const Job& job, const models::CostModel& model, const planner::PlanForm& form,
              std::vector<planner::PlannedCandidate>& candidates) {
  constexpr std::size_t kManyTables = 2000;  // beyond, pricing it costs as much as the search
  if (!form.any() || !job.plan_constraints.empty() ||
      job.workload.dlrm()->tables.size() > kManyTables) {
    return;  // another system has to carry the plan out, or the rule does not know what is asked
  }
  planner::PlannedCandidate rule;
  rule.plan = workloads::make_embedding_plan(job, "auto");
  rule.plan.sync_interval = job.sync_interval > 1 ? job.sync_interval : 0;
  rule.plan.dedup = job.embedding_dedup;
  rule.plan.ledger = planner::ledger_of(job, rule.plan);
  const std::optional<double> objective = planner::objective_of_plan(job, model, rule.plan);
  const bool known = std::any_of(candidates.begin(), candidates.end(), [&](const auto& c) {
    return objective && std::abs(c.objective - *objective) <= 1e-9 * *objective;
  });
  if (!objective || known || planner::excess_of(job, rule.plan, rule.plan.ledger)) {
    return;
  }
  rule.objective = *objective;
  for (const workloads::PlanPart& part : workloads::plan_parts(rule.plan)) {
    rule.mix.emplace_back(part.placed, part.tables);
  }
  candidates.push_back(std::move(rule));
}

}  // namespace

PlanReport plan(const Job& job, const PlanOptions& options) {
  const auto now = [&options] { return options.clock ? options.clock() : 0.0; };
  PlanReport report;
  report.job = job;
  const models::CostModel model(job.system, job.calibration);
  planner::PlannerOptions search;
  search.keep = std::max<std::size_t>(options.top, 4);
  search.search.keep = search.keep;
  search.search.seed = options.seed;
  search.search.anneals = anneals(options.effort);
  search.search.time_limit = options.time_limit;
  search.search.clock = options.clock;
  search.tiers = options.tiers;
  search.form = options.form;
  const double begin = now();
  planner::EmbeddingPlanning found = planner::plan_embeddings(job, model, search);
  report.search_seconds = now() - begin;
  report.bound = found.bound;
  report.bound_with_tiers = found.bound_with_tiers;
  report.bound_reason = found.bound_reason;
  report.gap = found.gap;
  report.evaluations = found.evaluations;
  report.space_log10 = found.space_log10;
  report.cut = found.cut;
  report.shortage = found.shortage;

  const double simulating = now();
  const planner::PlannedCandidate* best = found.best_buildable();
  if (best != nullptr) {
    report.objective = best->objective;
    report.rest_of_step = std::numeric_limits<double>::infinity();
  } else if (!found.candidates.empty()) {
    report.objective = found.candidates.front().objective;
  }
  if (best != nullptr) {
    add_rule(job, model, options.form, found.candidates);
  }
  for (planner::PlannedCandidate& c : found.candidates) {
    if (c.buildable()) {
      c.plan.predicted_step = simulated_step(job, model, c.plan);
      report.rest_of_step = std::min(report.rest_of_step, c.plan.predicted_step - c.objective);
    }
  }
  for (planner::PlannedCandidate& c : found.candidates) {
    RankedPlan ranked;
    ranked.objective = c.objective;
    ranked.simulated = c.buildable();
    ranked.not_built_because = c.buildable_because;
    ranked.mix = std::move(c.mix);
    if (!c.buildable()) {
      c.plan.predicted_step = report.rest_of_step + c.objective;
    }
    bound_step(c.plan, c.buildable() ? report.bound : report.bound_with_tiers, report.rest_of_step);
    ranked.plan = std::move(c.plan);
    report.plans.push_back(std::move(ranked));
  }
  // Plans that can be built come first: the others are an outlook.
  std::stable_sort(
      report.plans.begin(), report.plans.end(), [](const RankedPlan& a, const RankedPlan& b) {
        return a.simulated != b.simulated ? a.simulated
                                          : a.plan.predicted_step < b.plan.predicted_step;
      });
  std::size_t built = 0;
  std::erase_if(report.plans,
                [&](const RankedPlan& p) { return p.simulated && built++ >= options.top; });
  report.simulation_seconds = now() - simulating;
  if (options.compare && !report.plans.empty()) {
    report.compared = compare_plans(job, model, report, options);
  }
  return report;
}

}  // namespace stepcast::studies
