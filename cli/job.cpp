#include <fmt/ostream.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/recordings.h"
#include "core/whole_file.h"
#include "studies/traces/job_from_trace.h"
#include "traces/open_trace.h"

namespace stepcast::cli {
namespace {

struct JobCommand {
  std::vector<std::string> traces;
  std::string out, system, mark;
  OutputFormat format = OutputFormat::kText;
};

DataTable keys_table(const char* name, const char* title, const char* reason,
                     const std::vector<studies::InferredKey>& keys) {
  DataTable table(name, title, {{"key"}, {"value", "", true}, {"reason", reason, true}});
  for (const studies::InferredKey& k : keys) {
    table.row({cell(k.key), cell(k.value), cell(k.reason)});
  }
  return table;
}

DataTable comparison_table(const studies::RecordedAndPredicted& b) {
  DataTable table("comparison", "Recorded step and the step predicted for the job",
                  {{"part"}, {"recorded_s", "recorded"}, {"predicted_s", "predicted"}, {"error"}});
  const auto row = [&table](const char* part, Seconds recorded, Seconds predicted,
                            bool met = false) {
    table.row({cell(std::string(part)), cell(recorded), cell(predicted),
               recorded > Seconds{} && !met
                   ? Cell{percent_signed(predicted / recorded - 1), predicted / recorded - 1}
                   : empty_cell()});
  };
  row("step", b.recorded, b.predicted, b.met_by_host);
  row("compute", b.recorded_compute, b.predicted_compute);
  row("exposed communication", b.recorded_exposed, b.predicted_exposed);
  table.note(fmt::format(
      "Host time is taken from the record: {} for each op, the same on another system or plan.{}",
      human(b.host_per_op),
      b.met_by_host ? " It is most of the step, which is therefore met." : ""));
  return table;
}

int make_job(const JobCommand& options, const Context& context) {
  expect_writable(options.out);
  const std::vector<std::filesystem::path> paths(options.traces.begin(), options.traces.end());
  const traces::Recording recording =
      paths.size() == 1 ? open_recording(options.traces.front()) : traces::open_traces(paths);
  const studies::JobFromTrace job = studies::job_from_trace(
      recording, {.system = options.system, .mark = options.mark, .library = {context.library}});
  write_output(options.out, job.job);
  for (const std::string& w : job.warnings) {
    fmt::print(notes(), "stepcast: {}: {}\n", options.traces.front(), w);
  }
  std::vector<DataTable> tables{
      keys_table("inferred", "Inferred from the trace", "from", job.told),
      keys_table("open", "Not in the trace", "why, and what is assumed", job.open)};
  if (job.comparison) {
    tables.push_back(comparison_table(*job.comparison));
  }
  print_tables(tables, options.format, answer());
  return 0;
}

}  // namespace

void add_job(CLI::App& app, Context& context) {
  auto options = std::make_shared<JobCommand>();
  CLI::App* command = app.add_subcommand(
      "job", "Reconstruct a job from a PyTorch trace");
  command->add_option("trace", options->traces, "A recording, or the files of its ranks")
      ->required();
  command->add_option("--out", options->out, "Job file to write")->required()->check(output_file());
  command->add_option("--system", options->system,
                      "What it was recorded on (default: the usual machine of its device)");
  command->add_option("--mark", options->mark, "The name of the ranges that are steps");
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = make_job(*options, context); });
}

}  // namespace stepcast::cli
