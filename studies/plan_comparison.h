#pragma once
#include "models/cost_model.h"
#include "studies/plan.h"

namespace stepcast::studies {

/// The simulated step of a job under a plan. Errors: InputError for plans that workloads refuse.
double simulated_step(const Job& job, const models::CostModel& model, const EmbeddingPlan& plan);

/// The baselines' plans beside the planner's best, by the same prices and the same simulation.
std::vector<ComparedPlan> compare_plans(const Job& job, const models::CostModel& model,
                                        const PlanReport& report, const PlanOptions& options);

}  // namespace stepcast::studies
