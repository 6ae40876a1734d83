#pragma once
#include <string>

#include "cli/command.h"
#include "studies/plan/plan.h"

namespace stepcast::cli {

/// The ranked plans of embedding tables, their bound, the search, the bytes of plan 1 and what
/// other planners found. `headroom`: room was asked for, so how little there is needs no warning.
void print_embedding_plans(const studies::PlanReport& report, bool headroom, OutputFormat format);

/// Why there is no plan, of either kind. Returns the exit code.
int print_infeasible(const std::string& why, OutputFormat format);

/// Why no plan fits, with what `--memory-headroom` kept ("" nothing). Returns the exit code.
int print_shortage(const studies::PlanReport& report, const std::string& headroom, bool tiers,
                   OutputFormat format);

}  // namespace stepcast::cli
