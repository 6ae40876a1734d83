#pragma once
#include "cli/print/report.h"
#include "studies/predict/chosen_plan.h"
#include "studies/predict/memory_fix.h"

namespace stepcast::cli {

/// Keys that were taken for a job that does not say them, as text and JSON.
void add_choice(const studies::PlanChoice& choice, Report& report);

/// What to change where a job does not fit: the command typed, argv[1..], with the fastest fix.
void add_fixes(const std::vector<studies::Fix>& fixes, const std::vector<std::string>& arguments,
               Report& report);

}  // namespace stepcast::cli
