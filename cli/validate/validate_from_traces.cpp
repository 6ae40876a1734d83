#include "cli/validate/validate_from_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include "cli/support/progress.h"
#include "cli/validate/print_validation.h"
#include "cli/version.h"
#include "core/temporary_folder.h"
#include "validation/from_traces.h"

namespace stepcast::cli {
void add_from_traces_options(CLI::App& command, ValidateFromTracesCommand& options) {
  command
      .add_option("--from-traces", options.traces,
                  "runtime: fit on traces of this many jobs of each family instead of on a system "
                  "file")
      ->check(CLI::Range(1, 60));
  command.add_option(
      "--keep-traces", options.keep,
      "runtime: folder for a trace of every case, recorded in a separate run; with "
      "--from-traces for the traces it fits (default: none stays)");
}

int validate_from_traces(const ValidateFromTracesCommand& options, const FromTracesRun& run,
                         const Context& context, runtime::MpiSession& session) {
  Progress progress("validating");
  validation::FromTracesOptions study;
  study.seed = run.seed;
  study.traces = options.traces;
  study.cases = static_cast<std::size_t>(std::max<std::int64_t>(1, run.count / 2));
  study.library = context.library.root;
  study.producer = std::string(kVersionText);
  std::optional<TemporaryFolder> temporary;
  study.folder = options.keep;
  if (options.keep.empty()) {  // one folder for all ranks
    std::string name;
    if (session.rank() == 0) {
      temporary.emplace("stepcast-traces");
      name = temporary->path().string();
    }
    name.resize(
        static_cast<std::size_t>(session.from_rank_zero(static_cast<std::int64_t>(name.size()))));
    session.broadcast_bytes(name.data(), name.size());
    study.folder = name;
  }
  study.predicted = [&run](const std::vector<validation::RuntimeCase>& cases) {
    write_predictions(run.predictions.empty()
                          ? fmt::format("from-traces-predictions-{}.csv", run.seed)
                          : run.predictions,
                      case_predictions(cases, false), fmt::format("{} predictions", cases.size()));
  };
  study.progress = std::ref(progress);
  const validation::FromTracesResult result = validation::validate_from_traces(study, session);
  const validation::ValidationSuite suite = validation::from_traces_suite(result);
  if (session.rank() == 0) {
    print_validation({suite}, run.format, std::cout);
  }
  return suite.pass ? 0 : 1;
}

}  // namespace stepcast::cli
