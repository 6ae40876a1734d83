#include "studies/traces/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/command.h"
#include "cli/guard.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/recordings.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

struct ReplayCommand {
  std::vector<std::string> traces;
  std::vector<std::string> scales, drops;
  std::string network, device, mark;
  bool graphs = false, strict = false;
  std::int64_t ranks = 0;
  GuardCommand guard;
  OutputFormat format = OutputFormat::kText;
};

std::pair<std::string, double> scale_of(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  double factor = -1;
  if (equals != std::string::npos && equals > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + equals + 1, end, factor);
    factor = error == std::errc{} && stop == end ? factor : -1;
  }
  if (!(factor >= 0 && factor <= 1e6)) {
    throw InputError("--scale " + text,
                     "expected NAME=FACTOR with a factor from 0 to 1e6, e.g. --scale gemm=0.5 or "
                     "--scale comm=2");
  }
  return {text.substr(0, equals), factor};
}

/// A step of the run, replayed or not, against the measured one.
struct StepRow {
  std::string title;
  Seconds step;
  std::string against;
};

DataTable steps_table(const studies::Replay& r) {
  const auto row = [&](const char* title, Seconds t) {
    return StepRow{title, t, percent_signed(t / r.measured_step - 1)};
  };
  std::vector<StepRow> rows{
      {r.steady ? "measured (from step end to step end)" : "measured (median)", r.measured_step,
       ""},
      row("replayed", r.replayed_step),
      row("  if kernels were free", r.scale_0),
      row("  if kernels took twice as long", r.scale_2)};
  if (r.changed_step) {
    rows.push_back(
        {r.device_time_ratio ? "with the change, on this host" : "with the change", *r.changed_step,
         r.device_time_ratio && r.host_decides
             ? "unknown: the host decides, and it stays this one"
             : percent_signed(r.change - 1) + " of " + human(*r.unchanged_step) + " without it"});
  }
  return table_of("steps", "",
                  Columns<StepRow>{{"", "", &StepRow::title},
                                   {"", "step", &StepRow::step},
                                   {"", "against measured", &StepRow::against}},
                  rows, kInText);
}

/// The figures of all replays, a row each.
DataTable figures_table(const std::string& name, const studies::Replay& r) {
  using R = studies::Replay;
  const auto next = [](double R::*of) {
    return [of](auto& x) { return x.next_step_error >= 0 ? code(x.*of) : empty_cell(); };
  };
  return table_of(
      "replays", "",
      Columns<R>{{"trace", "", [&](auto&) { return name; }},
                 {"ranks", "", &R::ranks},
                 {"steps", "", &R::steps},
                 {"measured_step_s", "", &R::measured_step},
                 {"replayed_step_s", "", &R::replayed_step},
                 {"error", "", &R::error},
                 {"host_bound", "", &R::host_bound},
                 {"scale_0_s", "", &R::scale_0},
                 {"scale_2_s", "", &R::scale_2},
                 {"next_step_error", "", next(&R::next_step_error)},
                 {"last_step_error", "", next(&R::last_step_error)},
                 {"median_step_error", "", next(&R::median_step_error)},
                 {"kernel_start_p50_s", "", &R::kernel_start_p50},
                 {"kernel_start_p95_s", "", &R::kernel_start_p95},
                 {"last_end_error", "", &R::last_end_error},
                 {"changed_step_s", "",
                  [](auto& x) { return x.changed_step ? cell(*x.changed_step) : empty_cell(); }},
                 {"dropped_records", "", &R::dropped_records}},
      std::vector{r}, kInCsv);
}

/// How much of the step the change reaches, and what stayed as it was recorded.
void add_changed_share(const studies::Replay& r, Report& report) {
  const studies::ChangedShare& c = *r.changed_share;
  report.line(fmt::format(
      "\nthe change reaches {} of GPU time, {} of host time; without it the replay is {} off",
      percent(c.device), percent(c.host), percent_signed(r.error)));
  for (std::size_t i = 0; i < std::min<std::size_t>(3, c.stayed.size()); ++i) {
    report.line(fmt::format("  not reached: {}, {} of GPU time", short_name(c.stayed[i].first).text,
                            percent(c.stayed[i].second)));
  }
}

void add_errors(const studies::Replay& r, Report& report) {
  if (r.next_step_error >= 0) {
    report.fact("next_step", {{"error", r.next_step_error},
                              {"naive_error", r.last_step_error},
                              {"naive_median_error", r.median_step_error}});
    report.line(fmt::format(
        "\neach step, predicted from those before it: {} off (median); said to be as long as the "
        "last: "
        "{}, as their median: {}",
        percent(r.next_step_error), percent(r.last_step_error), percent(r.median_step_error)));
  } else {
    report.fact("next_step", nullptr);
  }
  report.fact("kernel_start_error_s",
              {{"p50", r.kernel_start_p50.base()}, {"p95", r.kernel_start_p95.base()}});
  report.fact("last_end_error", r.last_end_error);
  report.line(fmt::format(
      "kernels start {} off (median), {} at p95; the last ends {} of a step off",
      human(r.kernel_start_p50), human(r.kernel_start_p95), percent_signed(r.last_end_error)));
}

/// Values of the ranks, one list of JSON for each column.
void add_ranks(const Columns<studies::ReplayedRank>& columns,
               const std::vector<studies::ReplayedRank>& ranks, Report& report) {
  report.add(table_of("by_rank", "", columns, ranks, kInText));
  for (const auto& c : columns) {
    for (const studies::ReplayedRank& rank : ranks) {
      if (!c.column.key.empty()) {
        report.item(c.column.key, [&] { return c.of(rank).value; });
      }
    }
  }
}

void add_what_if(const studies::Replay& r, Report& report) {
  using R = studies::ReplayedRank;
  report.facts({{"step_s", r.changed_step->base()},
                {"unchanged_step_s", r.unchanged_step->base()},
                {"ratio", r.change},
                {"replay_error", r.error},
                {"host_decides", r.host_decides},
                {"doubtful", !r.doubts.empty()},
                {"doubts", r.doubts}});
  if (r.changed_share) {
    report.facts({{"device_time_changed", r.changed_share->device},
                  {"host_time_changed", r.changed_share->host}});
  }
  if (r.device_time_ratio) {
    report.fact("device_time_ratio", *r.device_time_ratio);
  }
  report.line("\nwith the change");
  add_ranks({{"", "rank", &R::rank},
             {"busy_s", "busy", &R::busy},
             {"exposed_communication_s", "exposed comm", &R::exposed_communication}},
            r.changed_by_rank, report);
}

/// A step that the host bounds may still wait for kernels that are slower.
std::string host_bound_text(const studies::Replay& r) {
  constexpr double kNotable = 0.05;
  return std::string(", host-bound: faster kernels change nothing") +
         (r.scale_2 > (1 + kNotable) * r.measured_step ? ", slower ones do" : "");
}

void add_replay(const std::string& name, const studies::Replay& r, Report& report) {
  using R = studies::ReplayedRank;
  report.line(fmt::format("{}: {}, {}{}\n", name, counted(r.ranks, "rank"), counted(r.steps, "step"),
                          r.host_bound ? host_bound_text(r) : ""));
  report.add(steps_table(r));
  report.facts({{"trace", name},
                {"ranks", r.ranks},
                {"steps", r.steps},
                {"marked_by", r.marked_by},
                {"measured_step_s", r.measured_step.base()},
                {"replayed_step_s", r.replayed_step.base()},
                {"error", r.error},
                {"host_bound", r.host_bound}});
  report.fact("controls", {{"scale_0", r.scale_0.base()}, {"scale_2", r.scale_2.base()}});
  if (r.device_time_ratio) {
    report.line(fmt::format("\ndevice time: {}", percent_signed(*r.device_time_ratio - 1)));
  }
  if (r.changed_share) {
    add_changed_share(r, report);
  }
  for (const std::string& d : r.doubts) {
    report.line("doubtful: " + d, Meaning::kWarning);
  }
  add_errors(r, report);
  report.line(fmt::format("time that the host only waited, taken out: {} per step\n",
                          human(r.stripped_wait)));
  add_ranks({{"", "rank", &R::rank},
             {"busy_s", "busy", &R::busy},
             {"measured_busy_s", "busy, recorded", &R::measured_busy},
             {"exposed_communication_s", "exposed comm", &R::exposed_communication},
             {"measured_exposed_communication_s", "exposed, recorded",
              &R::measured_exposed_communication}},
            r.by_rank, report);
  report.fact("stripped_wait_s", r.stripped_wait.base());
  if (r.changed_step) {
    add_what_if(r, report.section("what_if"));
  }
  report.fact("dropped_records", r.dropped_records);
  report.fact("warnings", r.warnings);
  for (const std::string& w : r.warnings) {
    report.line("warning: " + w, Meaning::kWarning);
  }
  report.add(figures_table(name, r));
}

int replay(const ReplayCommand& options, const Context& context) {
  if (options.guard.asked()) {
    std::vector<traces::MeasuredRun> runs;
    for (const std::string& path : options.traces) {
      runs.push_back(read_run(path, options.mark));
    }
    return guard(options.guard, options.traces, runs, options.format);
  }
  studies::ReplayOptions study;
  study.library = {context.library};
  study.ranks = options.ranks;
  study.change.drops = options.drops;
  study.change.graphs = options.graphs;
  for (const std::string& s : options.scales) {
    study.change.scales.push_back(scale_of(s));
  }
  System network;
  if (!options.network.empty()) {
    network = system_of("--network", options.network, {context.library});
    study.change.network = &network;
  }
  Device device;
  if (!options.device.empty()) {
    device = config::load_device(options.device, {context.library});
    study.change.device = &device;
  }
  std::vector<std::pair<std::string, studies::Replay>> all;
  for (const std::string& path : options.traces) {
    all.emplace_back(path, inferred_as("--ranks", [&] {
                       return studies::replay(read_run(path, options.mark), study);
                     }));
  }
  Report report(options.format);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) {
      report.line();
    }
    add_replay(all[i].first, all[i].second, report.item("replays"));
  }
  report.print(answer());
  const bool doubtful =
      std::any_of(all.begin(), all.end(), [](const auto& r) { return !r.second.doubts.empty(); });
  return options.strict && doubtful ? 1 : 0;
}

}  // namespace

void add_replay(CLI::App& app, Context& context) {
  auto options = std::make_shared<ReplayCommand>();
  CLI::App* command =
      app.add_subcommand("replay", "Simulate a recorded run again: errors with controls, what-if");
  command->add_option("trace", options->traces, "Recorded runs")->required();
  command
      ->add_option("--scale", options->scales,
                   "NAME=FACTOR: device times of an op kind, class (comm, compute, embedding, "
                   "...) or op name, or host for the host's time between launches, times FACTOR")
      ->allow_extra_args(false);
  command
      ->add_option("--drop", options->drops,
                   "Ops of this kind, class or name, or host, cost nothing")
      ->allow_extra_args(false);
  command->add_option("--network", options->network,
                      "Collectives cost what this system's models say");
  command->add_option("--device", options->device,
                      "Kernels as on this device: recorded times by the ratio of the models");
  command->add_option("--ranks", options->ranks, "The same job on this number of ranks")
      ->check(whole_number(1));
  command->add_flag("--graphs", options->graphs,
                    "CUDA graphs: one launch for all that lie between two synchronising calls");
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  command->add_flag("--strict", options->strict,
                    "Exit 1 when a what-if is doubtful: little device time covered, or the replay "
                    "without it more than 5 % off");
  add_guard_options(*command, options->guard);
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = replay(*options, context); });
}

}  // namespace stepcast::cli
