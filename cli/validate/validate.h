#pragma once
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "validation/suite.h"

namespace stepcast::cli {

/// The options of `stepcast validate`; a suite takes those that its help names.
struct ValidateOptions {
  std::vector<std::string> suites;
  std::string system, data, scalars, out_pace, calibrate, leave_out, emulate, predictions;
  std::string device, framework, holdout;
  bool form_only = false;
  std::size_t points = 1000;
  std::int64_t thin = 1;
  bool run = false;
  std::uint64_t seed = 1;
  std::optional<std::int64_t> count;
  std::optional<int> ranks;
  std::int64_t experts = 0;
  std::string backend = "cpu";
  std::size_t from_traces = 0;  ///< jobs of each family that are traced; 0: a system file is used
  std::string keep_traces;      ///< folder the traces stay in; empty: they are removed
  double budget = 0;
  std::string save_system;
  OutputFormat format = OutputFormat::kText;
};

/// A suite of `stepcast validate`: reads rows from --data or makes them by running jobs, predicts
/// and scores them. Nothing where other processes are the ranks of this one.
using RunSuite = std::optional<validation::Suite> (*)(const ValidateOptions&, Context&);
struct SuiteEntry {
  const char* name;
  const char* data;  ///< what --data must be; null where none is needed
  bool alone;        ///< runs jobs
  RunSuite run;
};
std::span<const SuiteEntry> validation_suites();

/// What-if answers checked by running: `count` jobs, drawn by `seed`, DLRMs and transformers in
/// turn, are recorded on a paced fabric, replayed with --network, --scale or --ranks in turn, then
/// really run so. The prediction is the recorded step times the replay's ratio.
std::optional<validation::Suite> validate_what_if(const ValidateOptions& options, Context& context);
/// Jobs that were drawn, predicted and then run as ranks.
std::optional<validation::Suite> validate_runtime(const ValidateOptions& options, Context& context);
/// How often the plan predicted to be the fastest is the fastest; calibrates first unless a system
/// is given.
std::optional<validation::Suite> validate_plans(const ValidateOptions& options, Context& context);

/// Suites as text, as the JSON of CONTRACT section 7, or one CSV line per row.
void print_suites(const std::vector<validation::Suite>& suites, OutputFormat format,
                  std::ostream& out);

}  // namespace stepcast::cli
