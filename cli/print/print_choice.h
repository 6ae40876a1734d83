#pragma once
#include "cli/print/report.h"
#include "studies/predict/chosen_plan.h"

namespace stepcast::cli {

/// Keys that were taken for a job that does not say them, as text and JSON.
void add_choice(const studies::PlanChoice& choice, Report& report);

}  // namespace stepcast::cli
