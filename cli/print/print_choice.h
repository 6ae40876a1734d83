#pragma once
#include <string>
#include <string_view>

#include "cli/print/report.h"
#include "studies/predict/chosen_plan.h"
#include "studies/predict/memory_fix.h"

namespace stepcast::cli {

/// Note of how the plan was chosen and the command that searches on, of the job as it was typed; "" where
/// the job says its plan.
std::string plan_note(const studies::PlanChoice& choice, std::string_view typed);
/// Keys that were taken for a job that does not say them, as text and JSON.
void add_choice(const studies::PlanChoice& choice, Report& report);

/// Changes where a job does not fit: the command typed, argv[1..], with the fastest fix; where none
/// was found, `plan`, arguments of a search.
void add_fixes(const std::vector<studies::Fix>& fixes, const std::vector<std::string>& arguments,
               const std::string& plan, Report& report);

}  // namespace stepcast::cli
