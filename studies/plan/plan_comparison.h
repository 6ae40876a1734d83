#pragma once
#include "models/cost_model.h"
#include "studies/plan/plan.h"

namespace stepcast::studies {

/// The simulated step of a job under a plan. Errors: InputError for plans that workloads reject.
double simulated_step(const Job& job, const models::CostModel& model, const EmbeddingPlan& plan);

/// A plan that the search did not make.
struct ProposedPlan {
  ComparedPlan row;
  bool rival = true;                  ///< shown by `--compare`
  std::optional<EmbeddingPlan> plan;  ///< with its ledger; empty where the method found none
};

/// Plans of rules and of other planners, in the planner's prices.
std::vector<ProposedPlan> proposed_plans(const Job& job, const models::CostModel& model,
                                         const PlanOptions& options);

}  // namespace stepcast::studies
