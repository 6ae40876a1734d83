#include "studies/traces/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cli/command.h"
#include "cli/data_table.h"
#include "cli/human.h"
#include "cli/print_prediction.h"
#include "cli/recordings.h"
#include "cli/text_table.h"
#include "core/config/config.h"
#include "core/error.h"
#include "studies/traces/compare_recorded.h"
#include "traces/graph/measured_recording.h"
#include "traces/native/native_trace.h"

namespace stepcast::cli {
namespace {

struct CompareCommand {
  std::string trace;
  JobOptions job;
  std::string system;
  bool by_name = false;
};

Job job_of(const CompareCommand& options, const traces::Trace& trace, const Context& context) {
  JobOptions job = options.job;
  if (!options.system.empty()) {
    job.overrides.push_back("system=" + options.system);
  }
  if (!job.job.empty()) {
    return load_job(job, context);
  }
  if (trace.job.empty()) {
    throw InputError(options.trace,
                     "carries no job; name the job file it was recorded from after it");
  }
  return config::load_job(config::text_source(trace.job, options.trace + "/trace.json: job"),
                          job.overrides, {context.library});
}

std::string signed_error(const studies::ComparisonRow& r) {
  const Seconds predicted = r.predicted + r.predicted_wait;
  const Seconds measured = r.measured + r.measured_wait;
  return measured > Seconds{} ? percent_signed(predicted / measured - 1) : "";
}

void print_text(const studies::Comparison& c, bool by_name, std::ostream& out) {
  TextTable table(
      {by_name ? "op" : "op kind", "count", "predicted", "measured", "error", "of the step"});
  for (const studies::ComparisonRow& r : by_name ? c.by_name : c.by_kind) {
    const auto both = [](Seconds t, Seconds wait) {
      return wait > microseconds(0.05) ? human(t) + " + " + human(wait) + " wait" : human(t);
    };
    table.row({r.name, r.executions > 0 ? std::to_string(r.executions) : "",
               both(r.predicted, r.predicted_wait), both(r.measured, r.measured_wait),
               signed_error(r), percent_signed(r.contribution)});
  }
  table.row({"step", "", human(c.predicted), human(c.measured), percent_signed(c.error),
             percent_signed(c.error)});
  out << fmt::format(
      "{} on {}: predicted beside measured, rank {}, median of {} steps (spread {})\n\n",
      c.workload, c.system, c.rank, c.steps, percent(c.spread));
  table.print(out);
  if (!c.traffic.empty()) {
    TextTable sent({"sent per step, all ranks", "predicted", "counted", "error"});
    for (const studies::ComparedTraffic& t : c.traffic) {
      sent.row({t.kind, human(Bytes(t.predicted)), human(Bytes(t.counted)),
                t.counted > 0 ? percent_signed(t.predicted / t.counted - 1) : ""});
    }
    out << '\n';
    sent.print(out);
  }
  if (c.pace) {
    const Seconds paced = c.predicted * c.pace->of_step();
    out << fmt::format(
        "\nprobes of the cores took {:.2f} times, exchanges {:.2f} times as long as when the "
        "system "
        "was calibrated: at that pace {}, {}\n",
        c.pace->core, c.pace->exchange, human(paced), percent_signed(paced / c.measured - 1));
  }
  if (c.dropped_records > 0) {
    out << fmt::format("\nwarning: the recorder dropped {} records; measured sums are too low\n",
                       c.dropped_records);
  }
}

nlohmann::ordered_json rows_json(const std::vector<studies::ComparisonRow>& rows) {
  nlohmann::ordered_json j = nlohmann::ordered_json::array();
  for (const studies::ComparisonRow& r : rows) {
    j.push_back({{"name", r.name},
                 {"kind", r.kind},
                 {"executions", r.executions},
                 {"predicted_s", r.predicted.base()},
                 {"measured_s", r.measured.base()},
                 {"predicted_wait_s", r.predicted_wait.base()},
                 {"measured_wait_s", r.measured_wait.base()},
                 {"contribution", r.contribution}});
  }
  return j;
}

void print_json(const studies::Comparison& c, std::ostream& out) {
  nlohmann::ordered_json j;
  j["stepcast"] = provenance_json();
  j["workload"] = c.workload;
  j["system"] = c.system;
  j["rank"] = c.rank;
  j["steps"] = c.steps;
  j["predicted_step_s"] = c.predicted.base();
  j["measured_step_s"] = c.measured.base();
  j["error"] = c.error;
  j["spread"] = c.spread;
  j["dropped_records"] = c.dropped_records;
  if (c.pace) {
    j["pace"] = {{"cores", c.pace->core},
                 {"exchange", c.pace->exchange},
                 {"step_s", (c.predicted * c.pace->of_step()).base()}};
  }
  j["by_kind"] = rows_json(c.by_kind);
  j["by_name"] = rows_json(c.by_name);
  j["traffic"] = nlohmann::ordered_json::array();
  for (const studies::ComparedTraffic& t : c.traffic) {
    j["traffic"].push_back(
        {{"kind", t.kind}, {"predicted_bytes", t.predicted}, {"counted_bytes", t.counted}});
  }
  out << j.dump(2) << '\n';
}

void print_csv(const studies::Comparison& c, bool by_name, std::ostream& out) {
  out << csv_line({"name", "kind", "executions", "predicted_s", "measured_s", "predicted_wait_s",
                   "measured_wait_s", "contribution"});
  const auto row = [&out](const studies::ComparisonRow& r) {
    out << csv_line(
        {r.name, r.kind, std::to_string(r.executions), fmt::format("{:.9g}", r.predicted.base()),
         fmt::format("{:.9g}", r.measured.base()), fmt::format("{:.9g}", r.predicted_wait.base()),
         fmt::format("{:.9g}", r.measured_wait.base()), fmt::format("{:.6g}", r.contribution)});
  };
  for (const studies::ComparisonRow& r : by_name ? c.by_name : c.by_kind) {
    row(r);
  }
  studies::ComparisonRow step;
  step.name = "step";
  step.executions = 1;
  step.predicted = c.predicted;
  step.measured = c.measured;
  step.contribution = c.error;
  row(step);
}

Cell of_sum(double error) { return {percent_signed(error), error}; }

/// The job is of as many devices as the run the capture is of had ranks.
void check_ranks(const traces::Recording& recording, const Job& job, const std::string& trace) {
  std::int64_t ranks = 0;
  for (const traces::RankRecording& r : recording.ranks) {
    ranks = std::max<std::int64_t>(ranks, r.world_size);
  }
  ranks = ranks > 0 ? ranks : static_cast<std::int64_t>(recording.ranks.size());
  if (ranks != job.devices) {
    throw InputError(trace, fmt::format("is of a run of {} rank{}, the job is of {} devices; give "
                                        "the job it ran (--set devices={}), or --system alone",
                                        ranks, ranks == 1 ? "" : "s", job.devices, ranks));
  }
}

/// A capture of another program: of the job named after it, or of a system alone.
int compare_capture(const CompareCommand& options, const Context& context) {
  Job job;
  if (!options.job.job.empty()) {
    job = job_of(options, {}, context);
  } else if (!options.system.empty()) {
    job.system = config::load_system(options.system, {context.library});
  } else {
    throw InputError(options.trace,
                     "was not recorded by `stepcast run`: name the job it ran after it, or the "
                     "system it ran on (--system)");
  }
  const traces::Recording recording = open_recording(options.trace);
  if (!options.job.job.empty()) {
    check_ranks(recording, job, options.trace);
  }
  const traces::MeasuredRun run = traces::measured_run(recording);
  const studies::RecordedComparison c =
      studies::compare_recorded(run, job, !options.job.job.empty());
  DataTable kinds("kinds", "kernels and collectives, per step and rank",
                  {{"kind", "op kind", true},
                   {"distinct"},
                   {"calls"},
                   {"predicted_s", "predicted"},
                   {"measured_s", "measured"},
                   {"error"},
                   {"median_error", "median"},
                   {"mean_error", "mean"},
                   {"p90_error", "p90"},
                   {"in_range", "in range"},
                   {"job_s", "of the job"}});
  for (const studies::RecordedKind& k : c.kinds) {
    kinds.row({cell(k.kind), cell(k.distinct), cell(k.calls), cell(k.predicted), cell(k.measured),
               k.measured > Seconds{} ? of_sum(k.predicted / k.measured - 1) : empty_cell(),
               share(k.median), share(k.mean), share(k.p90), share(k.in_range),
               k.job ? cell(*k.job) : empty_cell()});
  }
  DataTable unexplained(
      "unexplained", "device work without a shape",
      {{"reason", "", true}, {"name", "", true}, {"count"}, {"share", "share of time"}});
  for (const studies::Unexplained& u : c.unexplained) {
    unexplained.row(
        {cell(u.reason), short_name(u.name), cell(u.count), share(u.seconds / c.seconds)});
  }
  unexplained.limit(10);
  if (options.job.format == OutputFormat::kJson) {
    nlohmann::ordered_json j = {{"stepcast", provenance_json()},
                                {"system", c.system},
                                {"workload", c.workload},
                                {"ranks", c.ranks},
                                {"steps", c.steps},
                                {"measured_step_s", c.measured_step.base()},
                                {"wait_s", c.wait.base()},
                                {"kinds", kinds.json()},
                                {"unexplained", unexplained.json()},
                                {"warnings", c.warnings}};
    if (c.predicted_step) {
      j["predicted_step_s"] = c.predicted_step->base();
    }
    std::cout << j.dump(2) << '\n';
  } else if (options.job.format == OutputFormat::kCsv) {
    kinds.print_csv(std::cout);
  } else {
    std::cout << fmt::format("{} ranks, {} steps of {} (median); models of {}\n", c.ranks, c.steps,
                             human(c.measured_step), c.system);
    if (c.predicted_step) {
      std::cout << fmt::format("the job's step is predicted at {} ({})\n", human(*c.predicted_step),
                               percent_signed(*c.predicted_step / c.measured_step - 1));
    }
    std::cout << '\n';
    kinds.print_text(std::cout);
    std::cout << fmt::format("\nwaits in collectives: {} per step and rank\n\n", human(c.wait));
    unexplained.print_text(std::cout);
    for (const std::string& w : c.warnings) {
      std::cout << fmt::format("warning: {}\n", w);
    }
  }
  return 0;
}

int compare(const CompareCommand& options, const Context& context) {
  if (!traces::is_native(options.trace)) {
    return compare_capture(options, context);
  }
  const traces::Trace trace = traces::read_native(options.trace);
  const studies::Comparison c = studies::compare(trace, job_of(options, trace, context));
  switch (options.job.format) {
    case OutputFormat::kText:
      print_text(c, options.by_name, std::cout);
      break;
    case OutputFormat::kJson:
      print_json(c, std::cout);
      break;
    case OutputFormat::kCsv:
      print_csv(c, options.by_name, std::cout);
      break;
  }
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompareCommand>();
  CLI::App* command =
      app.add_subcommand("compare", "Predicted beside measured, per op kind and for the step");
  command->add_option("trace", options->trace, "Trace folder")->required();
  add_job_options(*command, options->job);
  command->add_option("--system", options->system,
                      "Predict for this system instead of the one named in the job");
  command->add_flag("--ops", options->by_name, "One row per named op instead of per kind");
  command->callback([options, &context] { context.exit_code = compare(*options, context); });
}

}  // namespace stepcast::cli
