#include "cli/predict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "cli/print/human.h"
#include "cli/print/print_choice.h"
#include "cli/print/print_details.h"
#include "cli/print/print_prediction.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/whole_run.h"
#include "core/config/default_framework.h"
#include "core/config/foreign.h"
#include "core/config/quantity.h"
#include "core/error.h"
#include "studies/predict/recipes.h"
#include "studies/predict/training_run.h"
#include "studies/predict/warnings.h"
#include "traces/chrome/chrome_writer.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

struct PredictCommand {
  JobOptions job;
  std::string timeline;
  std::string measured;
  bool intervals = false;
  bool allow_oom = false;
  bool as_is = false;
  bool details = false;
  WholeRunOptions run;
};

/// Consequences of the step for a whole run: side traffic and how long it takes.
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
void add_host_copies(const Job& job, const std::vector<studies::FlowCost>& flows, Report& report) {
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const Flow& f = job.flows[i];
    const bool saves = f.what == Flow::What::kState || f.what == Flow::What::kParameters;
    const bool tier = std::any_of(job.system.tiers.begin(), job.system.tiers.end(),
                                  [&](const Tier& t) { return t.name == f.via; });
    if (!saves || !tier || f.bandwidth > BytesPerSecond{}) {
      continue;
    }
    const auto devices = static_cast<double>(job.devices);
    report.line(fmt::format(
        "\n{} goes to {} of the machines, not to storage: {} from each of {} GPUs (replicas share "
        "it) at {}. For storage say \"via\": \"storage\", \"bandwidth\": \"200 GB/s\".",
        f.name, f.via, human(flows[i].moved / devices), job.devices,
        human(flows[i].available / devices)));
  }
}

void add_flows(const Job& job, const std::vector<studies::FlowCost>& flows, Report& report) {
  using F = studies::FlowCost;
  const auto rate_of = [](BytesPerSecond F::*of) {
    return [of](auto& f) { return Cell{human(f.*of), (f.*of).base()}; };
  };
  report.line();
  report.add(table_of(
      "flows", "",
      Columns<F>{{"name", "flow",
                  [](auto& f) {
                    return Cell{
                        f.name + (f.modified < 1 ? " (" + percent(f.modified) + " of rows)" : ""),
                        f.name};
                  }},
                 {"moved_bytes", "moves", &F::moved},
                 {"modified", "", &F::modified, kInJson},
                 {"stall_s", "stall", &F::stall},
                 {"slowdown", "", [](auto& f) { return share(f.slowdown); }},
                 {"needed_bytes_per_s", "needs", rate_of(&F::needed)},
                 {"available_bytes_per_s", "has", rate_of(&F::available)},
                 {"sustainable", "", [](auto& f) { return f.sustainable(); }, kInJson}},
      flows, kInText | kInJson));
  for (const F& f : flows) {
    if (!f.sustainable()) {
      report.line(fmt::format("\nwarning: flow {} is too slow: it needs {} and has {}", f.name,
                              human(f.needed), human(f.available)));
    }
  }
  add_host_copies(job, flows, report);
}

void add_failures(const studies::TrainingRun& r, Report& run) {
  run.facts({{"failures", r.failures},
             {"lost_s", r.lost.base()},
             {"best_checkpoint_every_s", r.best_checkpoint_every.base()}});
  run.line(fmt::format(
      "failures: one in {} on all GPUs, {} expected; each loses {} (half of the {} between "
      "checkpoints, the checkpoint under way, the restart), {:.3g} days or {} of the run in all",
      human(r.between_failures), grouped(r.failures), human(r.lost_each), human(r.checkpoint_every),
      r.lost / seconds(86400), percent(r.lost / r.time)));
  if (r.best_checkpoint_every > Seconds{}) {
    run.line(r.best_checkpoint_every > r.checkpoint_arrives
                 ? fmt::format("best checkpoint interval with this stall: {} (Young 1974)",
                               human(r.best_checkpoint_every))
                 : fmt::format("best checkpoint interval: {}, as often as one takes to arrive",
                               human(r.best_checkpoint_every)));
  }
}

/// An amount of a run, and between which amounts it lies.
struct RunAmount {
  const char* key;
  double unit;  ///< of the text
  double (*of)(const studies::TrainingRun&);
};

void add_whole_run(const WholeRun& whole, bool fits, Report& report) {
  using Run = studies::TrainingRun;
  const Run& r = *whole.run;
  const RunAmount time{"time_s", 86400, [](const Run& b) { return b.time.base(); }};
  const RunAmount hours{"device_hours", 1, [](const Run& b) { return b.device_hours; }};
  const RunAmount cost{"cost", 1, [](const Run& b) { return b.cost; }};
  Report& run = report.section("run");
  Json interval;
  const auto shown = [&](const RunAmount& a, const char* what) {
    std::string text = fmt::format("{}{}", grouped(a.of(r) / a.unit), what);
    if (whole.between) {
      const auto& [low, high] = *whole.between;
      interval[a.key] = {{"p5", a.of(low)}, {"p95", a.of(high)}};
      text += fmt::format(" ({} to {})", grouped(a.of(low) / a.unit), grouped(a.of(high) / a.unit));
    }
    return text;
  };
  std::string text = fmt::format("\nwhole run{}: {} steps, ",
                                 fits ? "" : ", if it fitted in memory", grouped(r.steps, 0));
  text += shown(time, " days") + ", ";
  text += shown(hours, " device-hours");
  run.facts({{"steps", r.steps},
             {"time_s", r.time.base()},
             {"device_hours", r.device_hours},
             {"megawatt_hours", r.megawatt_hours},
             {"stall_s", r.stall.base()}});
  if (r.cost > 0) {
    run.fact("cost", r.cost);
    text += fmt::format(", cost {}", shown(cost, ""));
  }
  if (whole.between) {
    run.fact("interval", interval);
  }
  if (r.megawatt_hours > 0) {
    text += fmt::format(", {} MWh at rated power", grouped(r.megawatt_hours));
  }
  if (!whole.flows.empty()) {
    text +=
        fmt::format("; includes stalls of the flows ({} of the time)", percent(r.stall / r.time));
  }
  run.line(text);
  if (r.failures > 0) {
    add_failures(r, run);
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
  // A scalar of one's own multiplies the step at the ideal rate, in place of the efficiency.
  return MeasuredStep{step, p.iteration / step - 1, p.job.calibration.scale * (step / p.hardware)};
}

void add_measured(const MeasuredStep& m, Report& report) {
  report.fact("measured",
              {{"step_s", m.step.base()}, {"error", m.error}, {"calibration_scale", m.scale}});
  report.line(
      fmt::format("\nmeasured {}: the prediction is {} off; --set calibration.scale={:.4g} "
                  "corrects it, also for "
                  "other jobs of the same software and machine",
                  human(m.step), percent_signed(m.error), m.scale));
}

int predict(const PredictCommand& options, const Context& context) {
  const auto [job, graph, p, default_framework, framework, choice, fixes] =
      predicted(options.job, context,
                {.step = {.timeline = !options.timeline.empty(), .intervals = options.intervals},
                 .as_is = options.as_is,
                 .fixes = true});
  if (!options.timeline.empty()) {
    traces::write_timeline(options.timeline, graph, p.timeline);
    tell_written(options.timeline);
  }
  const bool fits = p.fit == simulator::Fit::kYes;
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
  const bool searched = studies::leaves_headroom(job);
  const bool tight = searched && fits && p.capacity > Bytes{} &&
                     p.ledger.total() > studies::RecipeSearch::usable(job.system.device);
  std::string plan = typed_plan(context.arguments);
  plan += tight && !plan.empty() ? " --memory-headroom 0" : "";
  Report report(options.job.format);
  add_prediction(p,
                 {framework, !default_framework.empty(), options.details,
                  [&p = p, &on = framework, &context] {
                    return config::short_job_to_json(p.job, on, context.library);
                  },
                  plan_note(choice, plan), typed_job(context.arguments), plan},
                 report);
  add_choice(choice, report);
  if (measured) {
    add_measured(*measured, report);
  }
  if (!whole.flows.empty()) {
    add_flows(job, whole.flows, report);
  }
  if (whole.run) {
    add_whole_run(whole, fits, report);
  }
  for (const std::string& w : p.warnings) {
    report.line("\nwarning: " + w, Meaning::kWarning);
  }
  if (!fits) {
    add_fixes(fixes, context.arguments, searched ? plan : "", report);
  }
  if (options.details) {
    add_details(p, report);
  }
  report.print(answer());
  doubt_length(options.run);
  return fits || options.allow_oom ? 0 : 1;
}

}  // namespace

PredictedJob predicted(const JobOptions& options, const Context& context, const PredictedHow& how) {
  const config::Source source = job_source(options);
  const config::Library library{context.library};
  studies::ChosenJob on = studies::choose_plan(source, options.overrides, library, how.as_is);
  PredictedJob of{
      std::move(on.job),    {}, {}, std::move(on.default_framework), std::move(on.framework),
      std::move(on.choice), {}};
  if (on.built) {
    of.graph = std::move(on.built->graph);
    of.prediction = studies::predict(of.job, of.graph, on.built->step, how.step);
  } else {
    of.graph = workloads::build_graph(of.job);
    of.prediction = studies::predict(of.job, of.graph, how.step);
  }
  if (how.fixes && of.prediction.fit != simulator::Fit::kYes) {
    of.fixes = studies::memory_fixes(of.job, [&](const std::vector<std::string>& settings) {
      std::vector<std::string> all = options.overrides;
      all.insert(all.end(), settings.begin(), settings.end());
      return studies::choose_plan(source, all, library, how.as_is).job;
    });
  }
  if (of.job.workload.layered() != nullptr) {
    if (const auto phrases = config::approximated(source, library); !phrases.empty()) {
      of.prediction.warnings.push_back(
          fmt::format("approximated in {}: {}", of.job.workload.name, fmt::join(phrases, "; ")));
    }
  }
  if (std::string uneven = studies::uneven_stages(of.job, of.framework); !uneven.empty()) {
    of.prediction.warnings.push_back(std::move(uneven));
  }
  if (!on.rejected.empty()) {
    of.prediction.warnings.push_back(
        fmt::format("no framework is implied, as {}. The step is kernels alone, faster than real "
                    "runs; --set framework=NAME names one",
                    on.rejected));
  }
  return of;
}

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
  command->add_flag("--as-is", options->as_is,
                    "Take a job that says no plan as it is, not the fastest recipe that fits");
  command->add_flag("--allow-oom", options->allow_oom,
                    "Exit 0 even if the job does not fit in memory");
  add_whole_run_options(*command, options->run);
  command->callback([options, &context] { context.exit_code = predict(*options, context); });
}

}  // namespace stepcast::cli
