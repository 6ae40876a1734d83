#pragma once
#include "cli/command.h"
#include "studies/plan/drift.h"

namespace stepcast::cli {

/// `stepcast plan JOB --from PLAN --drift ACCESS`, to the standard output.
void print_drift(const studies::DriftReport& report, OutputFormat format);

}  // namespace stepcast::cli
