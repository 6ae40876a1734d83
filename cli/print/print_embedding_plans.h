#pragma once
#include <string>
#include <vector>

#include "cli/command.h"
#include "studies/plan/plan.h"

namespace stepcast::cli {

/// The ranked plans of embedding tables, their bound, the search, the bytes of plan 1 and what
/// other planners found. `file`: plan 1 was written there; `warnings`: of its prediction.
void print_embedding_plans(const studies::PlanReport& report, const std::string& file,
                           const std::vector<std::string>& warnings, OutputFormat format);

/// Why there is no plan, of either kind. Returns the exit code.
int print_infeasible(const std::string& why, OutputFormat format);

/// Why no plan fits, with what `--memory-headroom` kept ("" nothing). Returns the exit code.
int print_shortage(const studies::PlanReport& report, const std::string& headroom, bool tiers,
                   OutputFormat format);

}  // namespace stepcast::cli
