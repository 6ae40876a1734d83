#pragma once
#include <string>
#include <vector>

#include "cli/command.h"
#include "traces/measured_step.h"

namespace stepcast::cli {

/// `replay` as a check in CI: recorded runs against a baseline, or a baseline from recorded runs.
struct GuardCommand {
  std::string baseline, update;  ///< files: compare with, write
  std::string junit, markdown;   ///< files of the verdict
  std::string bencher;           ///< file of the times
  double tolerance = -1;         ///< percent; below 0: not given
  std::string structure = "fail";
  std::string cannot_judge = "fail";
  std::size_t keep = 0;  ///< runs of a baseline that is extended; 0: it is made anew
  [[nodiscard]] bool asked() const {
    return !baseline.empty() || !update.empty() || !bencher.empty();
  }
};
void add_guard_options(CLI::App& command, GuardCommand& options);

/// Prints what moved, writes the files asked for. Returns the exit code: 1 when something
/// regressed, 5 when the runs allow no verdict and that was not asked to pass.
int guard(const GuardCommand& options, const std::vector<std::string>& names,
          const std::vector<traces::MeasuredRun>& runs, OutputFormat format);

}  // namespace stepcast::cli
