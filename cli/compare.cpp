#include "studies/traces/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
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
  std::string system, mark;
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
    of_system.system = system_of("--system", options.system, {context.library});
  }
  return of_system;
}

/// Rows of a step, for people by their error.
DataTable rows_table(const std::string& key, bool by_name,
                     std::vector<studies::ComparisonRow> rows, Visibility look) {
  using R = studies::ComparisonRow;
  const auto both = [](Seconds t, Seconds wait) {
    return Cell{wait > microseconds(0.05) ? human(t) + " + " + human(wait) + " wait" : human(t),
                t.base()};
  };
  return table_of(
      key, "",
      Columns<R>{
          {"name", by_name ? "op" : "op kind", &R::name},
          {"kind", "", &R::kind, kInJson | kInCsv},
          {"executions", "count",
           [](auto& r) {
             return Cell{r.executions > 0 ? std::to_string(r.executions) : "", r.executions};
           }},
          {"predicted_s", "predicted", [both](auto& r) { return both(r.predicted, r.predicted_wait); }},
          {"measured_s", "measured", [both](auto& r) { return both(r.measured, r.measured_wait); }},
          {"predicted_wait_s", "", &R::predicted_wait, kInJson | kInCsv},
          {"measured_wait_s", "", &R::measured_wait, kInJson | kInCsv},
          {"", "error",
           [](auto& r) {
             const Seconds measured = r.measured + r.measured_wait;
             return measured > Seconds{}
                        ? percent_signed((r.predicted + r.predicted_wait) / measured - 1)
                        : "";
           },
           kInText},
          {"contribution", "of the step", [](auto& r) { return signed_share(r.contribution); }}},
      rows, look);
}

DataTable traffic_table(const studies::Comparison::ByOp& by) {
  using T = studies::ComparedTraffic;
  return table_of("traffic", "",
                  Columns<T>{{"kind", "sent per step, all ranks", &T::kind},
                             {"predicted_bytes", "predicted",
                              [](auto& t) { return Cell{human(Bytes(t.predicted)), t.predicted}; }},
                             {"counted_bytes", "counted",
                              [](auto& t) { return Cell{human(Bytes(t.counted)), t.counted}; }},
                             {"", "error",
                              [](auto& t) {
                                return t.counted > 0 ? percent_signed(t.predicted / t.counted - 1)
                                                     : "";
                              },
                              kInText}},
                  by.traffic, by.traffic.empty() ? kInJson : kInText | kInJson);
}

void add_ops(const studies::Comparison& c, bool by_name, Report& report) {
  const studies::Comparison::ByOp& by = *c.by_op;
  report.line(
      fmt::format("{} on {}: predicted against measured, rank {}, median of {} steps (spread {})\n",
                  c.workload, c.system, by.rank, c.steps, percent(by.spread)));
  report.facts({{"rank", by.rank}, {"error", by.error}, {"spread", by.spread}});
  report.add(rows_table("by_kind", false, by.by_kind, kInJson));
  report.add(rows_table("by_name", true, by.by_name, kInJson));
  std::vector<studies::ComparisonRow> rows = by_name ? by.by_name : by.by_kind;
  rows.push_back({"step", "", 1, *c.predicted, c.measured, {}, {}, by.error});
  report.add(rows_table("rows", by_name, std::move(rows), kInText | kInCsv));
  if (!by.traffic.empty()) {
    report.line();
  }
  report.add(traffic_table(by));
}

/// The job's devices must equal the ranks of the captured run.
void check_ranks(const traces::Recording& recording, const Job& job, const std::string& trace) {
  std::int64_t ranks = 0;
  for (const traces::RankRecording& r : recording.ranks) {
    ranks = std::max<std::int64_t>(ranks, r.world_size);
  }
  ranks = ranks > 0 ? ranks : static_cast<std::int64_t>(recording.ranks.size());
  if (ranks != job.devices) {
    throw InputError(trace, fmt::format("was recorded on {}, the job has {} devices; give the job "
                                        "it ran (--set devices={}), or --system alone",
                                        counted(ranks, "rank"), job.devices, ranks));
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
               k.measured > Seconds{} ? signed_share(k.predicted / k.measured - 1) : empty_cell(),
               share(k.median), share(k.mean), share(k.p90), share(k.in_range),
               k.job ? cell(*k.job) : empty_cell()});
  }
  return kinds;
}

DataTable unexplained_table(const studies::Comparison::ByShape& by) {
  DataTable unexplained(
      "unexplained", "device work without a shape",
      {{"reason", "", true}, {"name", "", true}, {"count"}, {"share", "share of time"}},
      kInText | kInJson);
  for (const studies::Unexplained& u : by.unexplained) {
    unexplained.row(
        {cell(u.reason), short_name(u.name), cell(u.count), share(u.seconds / by.seconds)});
  }
  unexplained.limit(10);
  return unexplained;
}

void add_kinds(const studies::Comparison& c, Report& report) {
  const studies::Comparison::ByShape& by = *c.by_shape;
  report.line(fmt::format("{} ranks, {} steps of {} (median); models of {}", c.ranks, c.steps,
                          human(c.measured), c.system));
  if (c.predicted) {
    report.line(fmt::format("the job's step is predicted at {} ({})", human(*c.predicted),
                            percent_signed(*c.predicted / c.measured - 1)));
  }
  report.line();
  report.fact("wait_s", by.wait.base());
  report.add(kinds_table(by));
  report.line(fmt::format("\nwaits in collectives: {} per step and rank\n", human(by.wait)));
  report.add(unexplained_table(by));
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
      studies::compare(traces::measured_run(recording, options.mark), job,
                       predicted ? &*predicted : nullptr);
  Report report(options.job.format);
  report.facts({{"workload", c.workload},
                {"system", c.system},
                {"ranks", c.ranks},
                {"steps", c.steps},
                {"measured_step_s", c.measured.base()},
                {"dropped_records", c.dropped_records},
                {"warnings", c.warnings}});
  if (c.predicted) {
    report.fact("predicted_step_s", c.predicted->base());
  }
  if (c.by_op) {
    add_ops(c, options.by_name, report);
  }
  if (c.by_shape) {
    add_kinds(c, report);
  }
  for (const std::string& w : c.warnings) {
    report.line("\nwarning: " + w, Meaning::kWarning);
  }
  report.print(answer());
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
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  command->callback([options, &context] { context.exit_code = compare(*options, context); });
}

}  // namespace stepcast::cli
