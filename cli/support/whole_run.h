#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "studies/predict/training_run.h"

namespace stepcast::cli {

/// How long a run is, what devices cost, how often they fail.
struct WholeRunOptions {
  studies::RunLength length;
  double price = 0;
  std::string mtbf, restart;
  [[nodiscard]] bool asked() const {
    return length.tokens > 0 || length.samples > 0 || length.steps > 0;
  }
  /// Errors: InputError for terms without a run, and for times that are none.
  [[nodiscard]] studies::RunTerms terms() const;
};
/// --tokens, --samples or --steps; --price, --mtbf, --restart.
void add_whole_run_options(CLI::App& command, WholeRunOptions& options);
/// Says on stderr where a number of tokens is beyond any run.
void doubt_length(const WholeRunOptions& options);

}  // namespace stepcast::cli
