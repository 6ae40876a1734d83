#pragma once
#include <string>

#include "cli/command.h"
#include "runtime/mpi/session.h"

namespace stepcast::cli {

/// `validate runtime --from-traces N`: models fitted on traces of N jobs of each family predict
/// others.
struct ValidateFromTracesCommand {
  std::size_t traces = 0;  ///< 0: the suite is not asked for
  std::string keep;        ///< folder the traces stay in; empty: they are removed
};
void add_from_traces_options(CLI::App& command, ValidateFromTracesCommand& options);

struct FromTracesRun {
  std::uint64_t seed = 1;
  std::int64_t count = 36;  ///< jobs that are predicted, half of each family
  std::string predictions;  ///< where the predictions are written before the runs
  OutputFormat format = OutputFormat::kText;
};
/// All ranks call it together; the exit code is 1 when a family's mean error is above its bar.
int validate_from_traces(const ValidateFromTracesCommand& options, const FromTracesRun& run,
                         const Context& context, runtime::MpiSession& session);

}  // namespace stepcast::cli
