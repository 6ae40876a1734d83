#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/config/default_framework.h"
#include "studies/plan/plan_parallel.h"

namespace stepcast::studies {

/// A plan as `predict` takes it.
using AsSet = std::function<config::PlanAsSet(const Job& plan)>;

/// Predicts the plans of a report as they are typed, and ranks them by that. A search costs all
/// plans as the framework runs one that is not split; what it does with plans of another shape, as
/// those with expert ranks, is added here. It takes time, so the bound holds; `proven` only where
/// no plan that was not simulated may now be faster.
void predict_command_line(ParallelPlanReport& report, const AsSet& command_line_form);

/// The setting of a batch with as many samples for each device, as a forecast takes it, where the
/// job says none and its workload's default leaves no plan.
std::vector<std::string> dividing_batch(const PlanRequest& request, const config::Source& source,
                                        const std::vector<std::string>& overrides,
                                        const config::Library& library);

}  // namespace stepcast::studies
