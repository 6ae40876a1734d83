#pragma once
#include <cstddef>
#include <string>

#include "cli/command.h"
#include "core/config/default_framework.h"
#include "core/job/plan_request.h"
#include "studies/plan/plans_as_set.h"

namespace stepcast::cli {

/// Options of `stepcast plan` for a transformer; all but threads, front, same_devices and framework
/// hold for embedding plans too.
struct ParallelPlanCommand {
  std::size_t top = 3;
  double time_limit = 0;  ///< seconds; 0 none
  int threads = 0;        ///< 0 all cores
  bool front = false;
  bool same_devices = false;
  bool details = false;
  std::string headroom;   ///< "5%" or "4 GiB"
  std::string framework;  ///< megatron, torchtitan
  std::string out;
  std::string export_as;
  std::string script;  ///< file of -o that the best plan is written to as its framework starts it
};

/// Bytes of `--memory-headroom`: "5%" of a device's memory, or "4 GiB"; 0 of "0" and of an empty
/// text. Errors: InputError for anything else, and for all of the memory.
double headroom_of(const std::string& text, Bytes memory);

/// `stepcast plan` on a transformer: searches, prints, writes. Returns the exit code: 1 when no
/// plan fits.
/// `command_line_form`: a plan as `predict` takes it; its step is shown as predicted so.
int plan_parallel(const config::PlanRequestOnFramework& on, const ParallelPlanCommand& options,
                  const studies::AsSet& command_line_form, OutputFormat format);

}  // namespace stepcast::cli
