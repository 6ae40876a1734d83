#pragma once
#include <cstdint>
#include <string>

#include "cli/command.h"
#include "cli/validate/validate_from_traces.h"

namespace stepcast::cli {

/// What `validate runtime` takes.
struct ValidateRuntimeRun {
  ValidateFromTracesCommand from_traces;
  std::string system, predictions;
  std::string backend = "cpu";
  std::uint64_t seed = 1;
  std::int64_t count = 36;
  std::int64_t experts = 0;  ///< transformers with experts besides
  int ranks = 2;
  OutputFormat format = OutputFormat::kText;
};

/// Predicts drawn jobs and runs them. Returns the exit code: 1 where a bar is missed.
int validate_runtime(const ValidateRuntimeRun& run, Context& context);

}  // namespace stepcast::cli
