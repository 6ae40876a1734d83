#include "studies/traces/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/print/data_table.h"
#include "cli/print/human.h"
#include "cli/print/print_prediction.h"
#include "cli/print/text_table.h"
#include "cli/support/console.h"
#include "cli/support/recordings.h"
#include "core/config/config.h"
#include "core/error.h"
#include "traces/measured_step.h"
#include "workloads/build_graph.h"

namespace stepcast::cli {
namespace {

struct CompareCommand {
  std::string trace;
  JobOptions job;
  std::string system;
  bool by_name = false;
};

/// The job of a run: the one named after it, else that of its trace; of a capture the system alone
/// will do.
Job job_of(const CompareCommand& options, const traces::Recording& recording,
           const Context& context) {
  JobOptions job = options.job;
  if (!options.system.empty()) {
    job.overrides.push_back("system=" + options.system);
  }
  if (!job.job.empty()) {
    return load_job(job, context);
  }
  if (!recording.job.empty()) {
    return config::load_job(config::text_source(recording.job, options.trace + "/trace.json: job"),
                            job.overrides, {context.library});
  }
  if (recording.own != nullptr) {
    throw InputError(options.trace,
                     "carries no job; name the job file it was recorded from after it");
  }
  Job of_system;
  if (options.system.empty()) {
    const DeviceName device = recorded_device(recording, "--system");
    if (device.system.empty()) {  // kernels need no more than the device
      of_system.system.device = config::load_device(std::string(device.device), {context.library});
      of_system.system.name = device.device;
    } else {
      of_system.system = config::load_system(std::string(device.system), {context.library});
    }
  } else {
    of_system.system = config::load_system(options.system, {context.library});
  }
  return of_system;
}

std::string signed_error(const studies::ComparisonRow& r) {
  const Seconds predicted = r.predicted + r.predicted_wait;
  const Seconds measured = r.measured + r.measured_wait;
  return measured > Seconds{} ? percent_signed(predicted / measured - 1) : "";
}

void print_text(const studies::Comparison& c, const studies::Comparison::ByOp& by, bool by_name,
                std::ostream& out) {
  TextTable table(
      {by_name ? "op" : "op kind", "count", "predicted", "measured", "error", "of the step"});
  for (const studies::ComparisonRow& r : by_name ? by.by_name : by.by_kind) {
    const auto both = [](Seconds t, Seconds wait) {
      return wait > microseconds(0.05) ? human(t) + " + " + human(wait) + " wait" : human(t);
    };
    table.row({r.name, r.executions > 0 ? std::to_string(r.executions) : "",
               both(r.predicted, r.predicted_wait), both(r.measured, r.measured_wait),
               signed_error(r), percent_signed(r.contribution)});
  }
  table.row({"step", "", human(*c.predicted), human(c.measured), percent_signed(by.error),
             percent_signed(by.error)});
  out << fmt::format(
      "{} on {}: predicted against measured, rank {}, median of {} steps (spread {})\n\n",
      c.workload, c.system, by.rank, c.steps, percent(by.spread));
  table.print(out, terminal_style(out));
  if (!by.traffic.empty()) {
    TextTable sent({"sent per step, all ranks", "predicted", "counted", "error"});
    for (const studies::ComparedTraffic& t : by.traffic) {
      sent.row({t.kind, human(Bytes(t.predicted)), human(Bytes(t.counted)),
                t.counted > 0 ? percent_signed(t.predicted / t.counted - 1) : ""});
    }
    out << '\n';
    sent.print(out, terminal_style(out));
  }
  for (const std::string& w : c.warnings) {
    out << fmt::format("\nwarning: {}\n", w);
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

void print_csv(const studies::Comparison& c, const studies::Comparison::ByOp& by, bool by_name,
               std::ostream& out) {
  out << csv_line({"name", "kind", "executions", "predicted_s", "measured_s", "predicted_wait_s",
                   "measured_wait_s", "contribution"});
  const auto row = [&out](const studies::ComparisonRow& r) {
    out << csv_line(
        {r.name, r.kind, std::to_string(r.executions), fmt::format("{:.9g}", r.predicted.base()),
         fmt::format("{:.9g}", r.measured.base()), fmt::format("{:.9g}", r.predicted_wait.base()),
         fmt::format("{:.9g}", r.measured_wait.base()), fmt::format("{:.6g}", r.contribution)});
  };
  for (const studies::ComparisonRow& r : by_name ? by.by_name : by.by_kind) {
    row(r);
  }
  studies::ComparisonRow step;
  step.name = "step";
  step.executions = 1;
  step.predicted = *c.predicted;
  step.measured = c.measured;
  step.contribution = by.error;
  row(step);
}

Cell of_sum(double error) { return {percent_signed(error), error}; }

/// The job's devices must equal the ranks of the captured run.
void check_ranks(const traces::Recording& recording, const Job& job, const std::string& trace) {
  std::int64_t ranks = 0;
  for (const traces::RankRecording& r : recording.ranks) {
    ranks = std::max<std::int64_t>(ranks, r.world_size);
  }
  ranks = ranks > 0 ? ranks : static_cast<std::int64_t>(recording.ranks.size());
  if (ranks != job.devices) {
    throw InputError(trace, fmt::format("was recorded on {} rank{}, the job has {} devices; give "
                                        "the job it ran (--set devices={}), or --system alone",
                                        ranks, ranks == 1 ? "" : "s", job.devices, ranks));
  }
}

DataTable kinds_table(const studies::Comparison::ByShape& by) {
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
  for (const studies::ComparedKind& k : by.kinds) {
    kinds.row({cell(k.kind), cell(k.distinct), cell(k.calls), cell(k.predicted), cell(k.measured),
               k.measured > Seconds{} ? of_sum(k.predicted / k.measured - 1) : empty_cell(),
               share(k.median), share(k.mean), share(k.p90), share(k.in_range),
               k.job ? cell(*k.job) : empty_cell()});
  }
  return kinds;
}

DataTable unexplained_table(const studies::Comparison::ByShape& by) {
  DataTable unexplained(
      "unexplained", "device work without a shape",
      {{"reason", "", true}, {"name", "", true}, {"count"}, {"share", "share of time"}});
  for (const studies::Unexplained& u : by.unexplained) {
    unexplained.row(
        {cell(u.reason), short_name(u.name), cell(u.count), share(u.seconds / by.seconds)});
  }
  unexplained.limit(10);
  return unexplained;
}

void print_text(const studies::Comparison& c, const studies::Comparison::ByShape& by,
                std::ostream& out) {
  out << fmt::format("{} ranks, {} steps of {} (median); models of {}\n", c.ranks, c.steps,
                     human(c.measured), c.system);
  if (c.predicted) {
    out << fmt::format("the job's step is predicted at {} ({})\n", human(*c.predicted),
                       percent_signed(*c.predicted / c.measured - 1));
  }
  out << '\n';
  kinds_table(by).print_text(out, terminal_style(out));
  out << fmt::format("\nwaits in collectives: {} per step and rank\n\n", human(by.wait));
  unexplained_table(by).print_text(out, terminal_style(out));
  for (const std::string& w : c.warnings) {
    out << fmt::format("warning: {}\n", w);
  }
}

void print_json(const studies::Comparison& c, std::ostream& out) {
  nlohmann::ordered_json j = {{"stepcast", provenance_json()},
                              {"workload", c.workload},
                              {"system", c.system},
                              {"ranks", c.ranks},
                              {"steps", c.steps},
                              {"measured_step_s", c.measured.base()},
                              {"dropped_records", c.dropped_records},
                              {"warnings", c.warnings}};
  if (c.predicted) {
    j["predicted_step_s"] = c.predicted->base();
  }
  if (c.by_op) {
    const studies::Comparison::ByOp& by = *c.by_op;
    j["rank"] = by.rank;
    j["error"] = by.error;
    j["spread"] = by.spread;
    j["by_kind"] = rows_json(by.by_kind);
    j["by_name"] = rows_json(by.by_name);
    j["traffic"] = nlohmann::ordered_json::array();
    for (const studies::ComparedTraffic& t : by.traffic) {
      j["traffic"].push_back(
          {{"kind", t.kind}, {"predicted_bytes", t.predicted}, {"counted_bytes", t.counted}});
    }
  }
  if (c.by_shape) {
    j["wait_s"] = c.by_shape->wait.base();
    j["kinds"] = kinds_table(*c.by_shape).json();
    j["unexplained"] = unexplained_table(*c.by_shape).json();
  }
  out << j.dump(2) << '\n';
}

int compare(const CompareCommand& options, const Context& context) {
  const traces::Recording recording = open_recording(options.trace);
  const Job job = job_of(options, recording, context);
  const bool given = !options.job.job.empty();
  if (given && recording.own == nullptr) {
    check_ranks(recording, job, options.trace);
  }
  // Predicts the job that ran as it ran, another job as it would.
  std::optional<ExecutionGraph> predicted;
  if (given ||
      (recording.own != nullptr && (!options.system.empty() || !options.job.overrides.empty()))) {
    predicted = workloads::build_graph(job);
  }
  const studies::Comparison c =
      studies::compare(traces::measured_run(recording), job, predicted ? &*predicted : nullptr);
  const bool csv = options.job.format == OutputFormat::kCsv;
  if (options.job.format == OutputFormat::kJson) {
    print_json(c, answer());
  } else if (c.by_op) {
    csv ? print_csv(c, *c.by_op, options.by_name, answer())
        : print_text(c, *c.by_op, options.by_name, answer());
  } else if (csv) {
    kinds_table(*c.by_shape).print_csv(answer());
  } else {
    print_text(c, *c.by_shape, answer());
  }
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Context& context) {
  auto options = std::make_shared<CompareCommand>();
  CLI::App* command =
      app.add_subcommand("compare", "Predicted against measured, per op kind and for the step");
  command->add_option("trace", options->trace, "Trace folder")->required();
  add_job_options(*command, options->job);
  command->add_option("--system", options->system,
                      "Predict for this system instead of the one named in the job, or of the "
                      "usual machine of the trace's device");
  command->add_flag("--ops", options->by_name, "One row per named op instead of per kind");
  command->callback([options, &context] { context.exit_code = compare(*options, context); });
}

}  // namespace stepcast::cli
