#pragma once
#include "models/cost_model.h"
#include "studies/plan.h"

namespace stepcast::studies {

/// The simulated step of a job under a plan. Errors: InputError for plans that workloads refuse.
double simulated_step(const Job& job, const models::CostModel& model, const EmbeddingPlan& plan);

/// Sets what a simulated plan says of its step: the bound of the part that plans decide, and the
/// least that any simulated plan of the job takes beside that part (negative where overlap hides
/// some of it); the gap of the step to their sum.
void bound_step(EmbeddingPlan& plan, double objective_bound, double rest_of_step);

/// The baselines' plans beside the planner's best, by the same prices and the same simulation.
std::vector<ComparedPlan> compare_plans(const Job& job, const models::CostModel& model,
                                        const PlanReport& report, const PlanOptions& options);

}  // namespace stepcast::studies
