#pragma once
#include <string>

#include "cli/print/report.h"
#include "core/config/default_framework.h"
#include "studies/plan/plan_parallel.h"

namespace stepcast::cli {

/// Ranked plans of a transformer: table, bound, front. `exported`: the text of a framework that is
/// printed with them; "" none.
Report parallel_report(const studies::ParallelPlanReport& report,
                       const config::PlanRequestOnFramework& on, bool details,
                       const std::string& exported, OutputFormat format);

/// CONTRACT section 5.
Json parallel_plan_json(const studies::ParallelPlanReport& report,
                        const studies::RankedParallelPlan& plan, const std::string& framework);

}  // namespace stepcast::cli
