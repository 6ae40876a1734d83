#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/print/report.h"
#include "planner/embedding/adapt_plan.h"
#include "studies/plan/plan_difference.h"
#include "studies/plan/replan.h"

namespace stepcast::cli {

/// `stepcast plan JOB --from PLAN [--max-migrate BYTES]`, to the standard output. `adapted`: what
/// it took to carry the plan over to other tables or devices.
void print_replan(const studies::ReplanReport& report, const planner::AdaptedPlan& adapted,
                  OutputFormat format);

/// Notes on a plan that was carried over, below a table, and the same as a fact.
void note_adapted(const studies::ReplanReport& report, const planner::AdaptedPlan& adapted,
                  DataTable& table);
void add_carried_over(const studies::ReplanReport& report, const planner::AdaptedPlan& adapted,
                      Report& printed);

/// An amount of bytes on the command line: "10 GB"; only 0 needs no unit.
std::int64_t bytes_option(const std::string& text, const char* option);

/// Adds the differences between two plans: tables, bytes by level and by rank, memory.
void add_difference(const studies::PlanDifference& d, std::vector<DataTable>& tables);

/// The override that gives a job the plan in `file`; a name without a folder is a file too.
std::string plan_override(const std::string& file);

}  // namespace stepcast::cli
