#pragma once
#include <map>
#include <string>

#include "cli/print/report.h"
#include "core/graph/step_traffic.h"
#include "core/job/job.h"
#include "runtime/trainer.h"

namespace stepcast::cli {

/// Bytes expected of a step: sent over links, moved between memory tiers.
struct RunTraffic {
  StepTraffic sent;
  std::map<std::string, RowTraffic> tiers;
};

/// Report of a run, with the bytes that it counted beside those expected.
Report run_report(const Job& job, const runtime::RunResult& r, const RunTraffic& predicted,
                  OutputFormat format);

}  // namespace stepcast::cli
