#pragma once
#include <cstddef>
#include <string>

#include "cli/command.h"
#include "core/plan_request.h"

namespace stepcast::cli {

struct ParallelPlanCommand {
  std::size_t top = 3;
  double time_limit = 0;  ///< seconds; 0 none
  int threads = 0;        ///< 0 all cores
  bool same_devices = false;
  OutputFormat format = OutputFormat::kText;
  std::string out;
  std::string export_as;
};

/// `stepcast plan` on a transformer: searches, prints, writes. Returns the exit code: 1 when no
/// plan fits.
int plan_parallel(const PlanRequest& request, const ParallelPlanCommand& options);

}  // namespace stepcast::cli
