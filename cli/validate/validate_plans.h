#pragma once
#include <cstdint>
#include <string>

#include "cli/command.h"

namespace stepcast::cli {

/// What only `validate plans` takes.
struct ValidatePlansCommand {
  double budget = 0;
  std::string save_system;
};
void add_plans_options(CLI::App& command, ValidatePlansCommand& options);

/// What it shares with other suites.
struct ValidatePlansRun {
  std::string system, predictions, emulate;
  std::uint64_t seed = 1;
  std::int64_t count = 24;
  int ranks = 4;
  OutputFormat format = OutputFormat::kText;
};

/// Measures how often the plan predicted to be the fastest is the fastest; calibrates first unless
/// a system is given. Returns the exit code.
int validate_plans(const ValidatePlansCommand& options, const ValidatePlansRun& run,
                   Context& context);

}  // namespace stepcast::cli
