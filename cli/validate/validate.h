#pragma once
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/print/report.h"
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

// Suites over tables: rows are read from --data, predicted, and scored.
validation::Suite score_published(const ValidateOptions& options, const Context& context);
validation::Suite score_dlrm(const ValidateOptions& options, const Context& context);
validation::Suite score_kernels(const ValidateOptions& options, const Context& context);
validation::Suite score_collectives(const ValidateOptions& options, const Context& context);
validation::Suite score_memory(const ValidateOptions& options, const Context& context);

// Suites with reports of their own. They return the exit code: 1 where a bar is missed.
/// Replays the runs below a folder: counts, errors, controls, next steps.
int validate_traces(const ValidateOptions& options, Context& context);
/// What-if answers checked by running: `count` jobs, drawn by `seed`, DLRMs and transformers in
/// turn, are recorded on a paced fabric, replayed with --network, --scale or --ranks in turn, then
/// really run so. The prediction is the recorded step times the replay's ratio.
int validate_what_if(const ValidateOptions& options, Context& context);
/// Predicts drawn jobs and runs them.
int validate_runtime(const ValidateOptions& options, Context& context);
/// Measures how often the plan predicted to be the fastest is the fastest; calibrates first unless
/// a system is given.
int validate_plans(const ValidateOptions& options, Context& context);

/// Suites as text, as the JSON of CONTRACT section 7, or one CSV line per row.
void print_suites(const std::vector<validation::Suite>& suites, OutputFormat format,
                  std::ostream& out);
/// How every suite of a document begins.
void begin_suite(Report& report, std::string_view name, std::string_view bound, bool pass);
/// Writes predictions as CSV before the predicted cases are run, and reports the path:
/// --predictions, or a name with `suite` and the seed. After every case again, with what was
/// measured, which so survives a run that fails later; `what` is empty then, and nothing reported.
void write_predictions(const ValidateOptions& options, std::string_view suite,
                       const DataTable& predictions, const std::string& what);

}  // namespace stepcast::cli
