#include "studies/predict.h"

#include <iostream>

#include "cli/command.h"
#include "cli/print_prediction.h"
#include "cli/text_table.h"
#include "core/error.h"
#include "traces/perfetto/perfetto_writer.h"

namespace stepcast::cli {
namespace {

struct PredictCommand {
  JobOptions job;
  std::string timeline;
  bool intervals = false;
  bool strict = false;
};

void print_csv(const studies::StepPrediction& p, std::ostream& out) {
  out << csv_line({"workload", "system", "devices", "iteration_time_s", "samples_per_s", "mfu",
                   "memory_bytes", "fits", "in_calibrated_range"});
  out << csv_line({p.job.workload.name, p.job.system.name, std::to_string(p.job.devices),
                   fmt::format("{:.9g}", p.iteration.base()),
                   fmt::format("{:.9g}", p.samples_per_second), fmt::format("{:.6g}", p.mfu),
                   fmt::format("{:.0f}", (p.memory.total() + p.reserve).base()),
                   p.fits ? "true" : "false", p.in_calibrated_range ? "true" : "false"});
}

int predict(const PredictCommand& options, const Context& context) {
  const Job job = load_job(options.job, context);
  const ExecutionGraph graph = workloads::build_graph(job);
  const studies::StepPrediction p = studies::predict(
      job, graph, {.timeline = !options.timeline.empty(), .intervals = options.intervals});
  if (!options.timeline.empty()) {
    traces::write_perfetto(options.timeline, graph, p.timeline);
  }
  switch (options.job.format) {
    case OutputFormat::kText:
      print_prediction(p, std::cout);
      break;
    case OutputFormat::kJson:
      std::cout << prediction_json(p).dump(2) << '\n';
      break;
    case OutputFormat::kCsv:
      print_csv(p, std::cout);
      break;
  }
  return options.strict && !p.fits ? 1 : 0;
}

}  // namespace

void add_predict(CLI::App& app, Context& context) {
  auto options = std::make_shared<PredictCommand>();
  CLI::App* command =
      app.add_subcommand("predict", "Predict the time, breakdown and memory of one training step");
  add_job_options(*command, options->job);
  command->add_option("--timeline", options->timeline,
                      "Write the predicted timeline as Perfetto JSON");
  command->add_flag("--intervals", options->intervals,
                    "Add the p5 and p95 that follow from the fitted residuals");
  command->add_flag("--strict", options->strict, "Exit 1 if the job does not fit in memory");
  command->callback([options, &context] { context.exit_code = predict(*options, context); });
}

}  // namespace stepcast::cli
