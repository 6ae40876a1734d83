#include "studies/predict.h"

#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/output_files.h"
#include "cli/print_prediction.h"
#include "cli/text_table.h"
#include "core/config/quantity.h"
#include "core/error.h"
#include "studies/training_run.h"
#include "traces/perfetto/perfetto_writer.h"

namespace stepcast::cli {
namespace {

struct PredictCommand {
  JobOptions job;
  std::string timeline;
  std::string measured;
  bool intervals = false;
  bool strict = false;
  studies::RunLength length;
  [[nodiscard]] bool asks_for_run() const {
    return length.tokens > 0 || length.samples > 0 || length.steps > 0;
  }
};

/// What follows from the step for a whole run: side traffic and how long it takes.
struct WholeRun {
  std::vector<studies::FlowCost> flows;
  std::optional<studies::TrainingRun> run;
};

void print_run(const WholeRun& whole, std::ostream& out) {
  if (!whole.flows.empty()) {
    TextTable table({"flow", "moves", "stall", "slowdown", "needs", "has"});
    for (const studies::FlowCost& f : whole.flows) {
      table.row({f.name + (f.modified < 1 ? " (" + percent(f.modified) + " of rows)" : ""),
                 human(f.moved), human(f.stall), percent(f.slowdown), human(f.needed),
                 human(f.available)});
    }
    out << '\n';
    table.print(out);
    for (const studies::FlowCost& f : whole.flows) {
      if (!f.sustainable()) {
        out << fmt::format("\nwarning: flow {} does not keep up: it needs {} and has {}\n", f.name,
                           human(f.needed), human(f.available));
      }
    }
  }
  if (whole.run) {
    const studies::TrainingRun& r = *whole.run;
    out << fmt::format(
        "\nwhole run: {:.0f} steps, {:.4g} days, {:.4g} device-hours{}\n", r.steps,
        r.time / seconds(86400), r.device_hours,
        r.megawatt_hours > 0
            ? fmt::format(", {:.4g} MWh at the devices' rated power", r.megawatt_hours)
            : "");
  }
}

void add_run_json(const WholeRun& whole, nlohmann::ordered_json& j) {
  if (!whole.flows.empty()) {
    j["flows"] = nlohmann::ordered_json::array();
    for (const studies::FlowCost& f : whole.flows) {
      j["flows"].push_back({{"name", f.name},
                            {"moved_bytes", f.moved.base()},
                            {"modified", f.modified},
                            {"stall_s", f.stall.base()},
                            {"slowdown", f.slowdown},
                            {"needed_bytes_per_s", f.needed.base()},
                            {"available_bytes_per_s", f.available.base()},
                            {"sustainable", f.sustainable()}});
    }
  }
  if (whole.run) {
    j["run"] = {{"steps", whole.run->steps},
                {"time_s", whole.run->time.base()},
                {"device_hours", whole.run->device_hours},
                {"megawatt_hours", whole.run->megawatt_hours}};
  }
}

/// One measured step of the job, and the scalar that takes the prediction there: all times are
/// multiplied by it, so it serves other jobs of the same software on the same machine.
struct MeasuredStep {
  Seconds step;
  double error = 0;
  double scale = 1;
};

std::optional<MeasuredStep> measured_step(const PredictCommand& options,
                                          const studies::StepPrediction& p) {
  if (options.measured.empty()) {
    return std::nullopt;
  }
  const auto step = config::parse_quantity<Seconds>(options.measured, "--measured");
  if (step <= Seconds{}) {
    throw InputError("--measured", "is the time of one step, above 0, such as 10.4s");
  }
  return MeasuredStep{step, p.iteration / step - 1, p.job.calibration.scale * (step / p.iteration)};
}

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
      job, graph,
      {.timeline = !options.timeline.empty(), .intervals = options.intervals, .remedies = true});
  if (!options.timeline.empty()) {
    traces::write_perfetto(options.timeline, graph, p.timeline);
    tell_written(options.timeline);
  }
  WholeRun whole{studies::flow_costs(job, p.iteration), std::nullopt};
  if (options.asks_for_run()) {
    whole.run = studies::training_run(p, whole.flows, options.length);
  }
  const auto measured = measured_step(options, p);
  switch (options.job.format) {
    case OutputFormat::kText:
      print_prediction(p, std::cout);
      if (measured) {
        std::cout << fmt::format(
            "\nmeasured {}: the prediction is {} off; --set calibration.scale={:.4g} takes it "
            "there, "
            "and other jobs of the same software and machine along\n",
            human(measured->step), percent_signed(measured->error), measured->scale);
      }
      print_run(whole, std::cout);
      break;
    case OutputFormat::kJson: {
      nlohmann::ordered_json j = prediction_json(p);
      if (measured) {
        j["measured"] = {{"step_s", measured->step.base()},
                         {"error", measured->error},
                         {"calibration_scale", measured->scale}};
      }
      add_run_json(whole, j);
      std::cout << j.dump(2) << '\n';
      break;
    }
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
  command
      ->add_option("--timeline", options->timeline, "Write the predicted timeline as Perfetto JSON")
      ->check(output_file());
  command->add_flag("--intervals", options->intervals,
                    "Add the p5 and p95 that follow from the fitted residuals");
  command->add_option(
      "--measured", options->measured,
      "Time of one measured step of this job, such as 10.4s: says the error, and the "
      "calibration.scale that takes predictions there");
  command->add_flag("--strict", options->strict, "Exit 1 if the job does not fit in memory");
  auto* length = command->add_option_group("length", "How long a whole run takes; one of");
  length->add_option("--tokens", options->length.tokens, "Tokens to train on, such as 3e11")
      ->check(positive_number());
  length->add_option("--samples", options->length.samples, "Samples to train on")
      ->check(positive_number());
  length->add_option("--steps", options->length.steps, "Steps to train for")
      ->check(positive_number());
  length->require_option(0, 1);
  command->callback([options, &context] { context.exit_code = predict(*options, context); });
}

}  // namespace stepcast::cli
