#include "studies/predict/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/output_files.h"
#include "cli/print_details.h"
#include "cli/print_prediction.h"
#include "cli/text_table.h"
#include "cli/whole_run.h"
#include "core/config/quantity.h"
#include "core/config/usual_stack.h"
#include "core/error.h"
#include "studies/plan/searched_plan.h"
#include "studies/predict/training_run.h"
#include "traces/perfetto/perfetto_writer.h"

namespace stepcast::cli {
namespace {

struct PredictCommand {
  JobOptions job;
  std::string timeline;
  std::string measured;
  bool intervals = false;
  bool strict = false;
  bool details = false;
  WholeRunOptions run;
};

/// What follows from the step for a whole run: side traffic and how long it takes.
struct WholeRun {
  std::vector<studies::FlowCost> flows;
  std::optional<studies::TrainingRun> run;
  /// At the ends of the step's interval; empty without one.
  std::optional<std::pair<studies::TrainingRun, studies::TrainingRun>> between;
};

/// The run of a step that takes as long.
studies::TrainingRun run_at(const studies::StepPrediction& p, Seconds step,
                            const PredictCommand& options, const studies::RunTerms& terms) {
  studies::StepPrediction at;
  at.job = p.job;
  at.iteration = step;
  at.samples_per_second = p.samples_per_second * (p.iteration / step);
  at.tokens_per_second = p.tokens_per_second * (p.iteration / step);
  return studies::training_run(at, studies::flow_costs(p.job, step), options.run.length, terms);
}

/// A checkpoint that stays in the machines: over how many links it leaves the devices, and that it
/// has not reached a store.
void print_host_copies(const Job& job, const std::vector<studies::FlowCost>& flows,
                       std::ostream& out) {
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& f = job.flows[i];
    const bool saves = f.what == Flow::What::kState || f.what == Flow::What::kParameters;
    const bool tier = std::any_of(job.system.tiers.begin(), job.system.tiers.end(),
                                  [&](const Tier& t) { return t.name == f.via; });
    if (!saves || !tier || f.bandwidth > BytesPerSecond{}) {
      continue;
    }
    const auto devices = static_cast<double>(job.devices);
    out << fmt::format(
        "\n{} goes to {} of the machines, not to a store: {} from each of {} devices (replicas "
        "share it) at {}; a store has a rate of its own: \"via\": \"storage\", \"bandwidth\": "
        "\"200 GB/s\"\n",
        f.name, f.via, human(flows[i].moved / devices), job.devices,
        human(flows[i].available / devices));
  }
}

void print_failures(const studies::TrainingRun& r, std::ostream& out) {
  out << fmt::format(
      "failures: one in {} on all devices, {} expected; each loses {} (half of the {} between "
      "checkpoints, the last one on its way, the restart), together {:.3g} days or {} of the run\n",
      human(r.between_failures), grouped(r.failures), human(r.lost_each), human(r.checkpoint_every),
      r.lost / seconds(86400), percent(r.lost / r.time));
  if (r.best_checkpoint_every > Seconds{}) {
    out << (r.best_checkpoint_every > r.checkpoint_arrives
                ? fmt::format("with this stall a checkpoint every {} loses least (Young 1974)\n",
                              human(r.best_checkpoint_every))
                : fmt::format("a checkpoint loses least as often as it can: every {}, which one "
                              "takes to arrive\n",
                              human(r.best_checkpoint_every)));
  }
}

void print_run(const Job& job, const WholeRun& whole, bool fits, std::ostream& out) {
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
    print_host_copies(job, whole.flows, out);
  }
  if (whole.run) {
    const studies::TrainingRun& r = *whole.run;
    const auto between = [&whole](auto of) {
      return whole.between ? fmt::format(" ({} to {})", grouped(of(whole.between->first)),
                                         grouped(of(whole.between->second)))
                           : std::string();
    };
    using Run = studies::TrainingRun;
    out << fmt::format(
        "\nwhole run{}: {} steps, {} days{}, {} device-hours{}", fits ? "" : ", if it fitted",
        grouped(r.steps, 0), grouped(r.time / seconds(86400)),
        between([](const Run& b) { return b.time / seconds(86400); }), grouped(r.device_hours),
        between([](const Run& b) { return b.device_hours; }));
    if (r.cost > 0) {
      out << fmt::format(", {}{} for the devices", grouped(r.cost),
                         between([](const Run& b) { return b.cost; }));
    }
    if (r.megawatt_hours > 0) {
      out << fmt::format(", {} MWh at the devices' rated power", grouped(r.megawatt_hours));
    }
    if (!whole.flows.empty()) {
      out << fmt::format("; stalls of the flows are included ({} of the time)",
                         percent(r.stall / r.time));
    }
    out << '\n';
    if (r.failures > 0) {
      print_failures(r, out);
    }
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
                {"megawatt_hours", whole.run->megawatt_hours},
                {"stall_s", whole.run->stall.base()}};
    if (whole.run->cost > 0) {
      j["run"]["cost"] = whole.run->cost;
    }
    if (whole.between) {
      const auto& [low, high] = *whole.between;
      j["run"]["interval"] = {
          {"time_s", {{"p5", low.time.base()}, {"p95", high.time.base()}}},
          {"device_hours", {{"p5", low.device_hours}, {"p95", high.device_hours}}}};
      if (whole.run->cost > 0) {
        j["run"]["interval"]["cost"] = {{"p5", low.cost}, {"p95", high.cost}};
      }
    }
    if (whole.run->failures > 0) {
      j["run"]["failures"] = whole.run->failures;
      j["run"]["lost_s"] = whole.run->lost.base();
      j["run"]["best_checkpoint_every_s"] = whole.run->best_checkpoint_every.base();
    }
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
  const nlohmann::ordered_json j = prediction_json(p);
  std::vector<std::string> header{
      "workload", "system",       "devices", "iteration_time_s",    "samples_per_s",
      "mfu",      "memory_bytes", "fits",    "in_calibrated_range", "tokens_per_s"};
  std::vector<std::string> parts;
  for (const auto& [part, time] : j.at("time_s").items()) {
    header.push_back(part + "_s");
    parts.push_back(fmt::format("{:.9g}", time.get<double>()));
  }
  out << csv_line(header);
  std::vector<std::string> cells{
      p.job.workload.name,
      p.job.system.name,
      std::to_string(p.job.devices),
      fmt::format("{:.9g}", p.iteration.base()),
      fmt::format("{:.9g}", p.samples_per_second),
      fmt::format("{:.6g}", p.mfu),
      fmt::format("{:.0f}", (p.memory.total() + p.reserve).base()),
      p.fits ? "true" : "false",
      p.in_calibrated_range ? "true" : "false",
      p.tokens_per_second > 0 ? fmt::format("{:.9g}", p.tokens_per_second) : ""};
  cells.insert(cells.end(), parts.begin(), parts.end());
  out << csv_line(cells);
}

int predict(const PredictCommand& options, const Context& context) {
  auto [loaded, usual_stack, refused] = config::load_job_on_usual_stack(
      job_source(options.job), options.job.overrides, {context.library});
  const Job job = studies::with_searched_plan(std::move(loaded));
  const ExecutionGraph graph = workloads::build_graph(job);
  studies::StepPrediction p = studies::predict(
      job, graph,
      {.timeline = !options.timeline.empty(), .intervals = options.intervals, .remedies = true});
  if (!refused.empty()) {
    p.warnings.push_back(
        fmt::format("no stack is named, and {}: the step is at the hardware's pace", refused));
  }
  if (!options.timeline.empty()) {
    traces::write_perfetto(options.timeline, graph, p.timeline);
    tell_written(options.timeline);
  }
  WholeRun whole{studies::flow_costs(job, p.iteration), std::nullopt, std::nullopt};
  const studies::RunTerms terms = options.run.terms();
  if (options.run.asked()) {
    whole.run = studies::training_run(p, whole.flows, options.run.length, terms);
    if (p.interval) {
      whole.between = {run_at(p, p.interval->p5, options, terms),
                       run_at(p, p.interval->p95, options, terms)};
    }
  }
  const auto measured = measured_step(options, p);
  switch (options.job.format) {
    case OutputFormat::kText:
      print_prediction(p, usual_stack, std::cout);
      if (measured) {
        std::cout << fmt::format(
            "\nmeasured {}: the prediction is {} off; --set calibration.scale={:.4g} takes it "
            "there, "
            "and other jobs of the same software and machine along\n",
            human(measured->step), percent_signed(measured->error), measured->scale);
      }
      print_run(job, whole, p.fits, std::cout);
      print_warnings(p, std::cout);
      if (options.details) {
        print_details(p, std::cout);
      }
      break;
    case OutputFormat::kJson: {
      nlohmann::ordered_json j = prediction_json(p);
      if (!usual_stack.empty()) {
        j["usual_stack"] = usual_stack;
      }
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
  doubt_length(options.run);
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
  command->add_flag("--details", options->details,
                    "Also the longest ops and why, other ranks, memory by purpose");
  command->add_flag("--strict", options->strict, "Exit 1 if the job does not fit in memory");
  add_whole_run_options(*command, options->run);
  command->callback([options, &context] { context.exit_code = predict(*options, context); });
}

}  // namespace stepcast::cli
