#include "studies/traces/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iostream>

#include "cli/checks.h"
#include "cli/command.h"
#include "cli/guard.h"
#include "cli/human.h"
#include "cli/print_prediction.h"
#include "cli/data_table.h"
#include "cli/recordings.h"
#include "cli/text_table.h"
#include "core/error.h"
#include "traces/graph/measured_recording.h"
#include "traces/native/native_trace.h"
#include "traces/open_trace.h"

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

void print_text(const std::string& name, const studies::Replay& r, std::ostream& out) {
  out << fmt::format("{}: {} ranks, {} steps{}\n\n", name, r.ranks, r.steps,
                     r.host_bound ? ", host-bound: says nothing of devices or network" : "");
  TextTable table({"", "step", "against measured"});
  const auto row = [&](const char* what, Seconds t) {
    table.row({what, human(t), percent_signed(t / r.measured_step - 1)});
  };
  table.row({r.steady ? "measured (from step end to step end)" : "measured (median)",
             human(r.measured_step), ""});
  row("replayed", r.replayed_step);
  row("  control: device times x 0", r.scale_0);
  row("  control: device times x 2", r.scale_2);
  if (r.changed_step) {
    table.row({"with the change", human(*r.changed_step),
               percent_signed(r.change - 1) + " of " + human(*r.unchanged_step) + " without it"});
  }
  table.print(out);
  if (r.changed_share) {
    const studies::ChangedShare& c = *r.changed_share;
    out << fmt::format("\nchanged: {} of device time, {} of host time; replay without the change: {} off\n",
                       percent(c.device), percent(c.host), percent_signed(r.error));
    for (std::size_t i = 0; i < std::min<std::size_t>(3, c.stayed.size()); ++i) {
      out << fmt::format("  as recorded: {} {}\n", percent(c.stayed[i].second),
                         short_name(c.stayed[i].first).text);
    }
  }
  for (const std::string& d : r.doubts) {
    out << "doubtful: " << d << '\n';
  }
  if (r.next_step_error >= 0) {
    out << fmt::format(
        "\nnext step, from those before it: {} median error (same as the last step: {}; median of "
        "all before: {})\n",
        percent(r.next_step_error), percent(r.last_step_error), percent(r.median_step_error));
  }
  out << fmt::format("op begins of the last step: {} off at p50, {} at p95; last end {} off\n",
                     human(r.kernel_start_p50), human(r.kernel_start_p95),
                     percent_signed(r.last_end_error));
  out << fmt::format("host time stripped as waiting: {} a step\n\n", human(r.stripped_wait));
  TextTable ranks({"rank", "busy", "recorded", "exposed communication", "recorded"});
  for (const studies::ReplayedRank& k : r.by_rank) {
    ranks.row({std::to_string(k.rank), human(k.busy), human(k.measured_busy),
               human(k.exposed_communication), human(k.measured_exposed_communication)});
  }
  ranks.print(out);
  if (r.changed_step) {
    out << '\n';
    TextTable with({"rank", "busy with the change", "exposed communication with the change"});
    for (const studies::ReplayedRank& k : r.changed_by_rank) {
      with.row({std::to_string(k.rank), human(k.busy), human(k.exposed_communication)});
    }
    with.print(out);
  }
  for (const std::string& w : r.warnings) {
    out << "warning: " << w << '\n';
  }
}

nlohmann::ordered_json to_json(const std::string& name, const studies::Replay& r) {
  nlohmann::ordered_json j;
  j["trace"] = name;
  j["ranks"] = r.ranks;
  j["steps"] = r.steps;
  j["marked_by"] = r.marked_by;
  j["measured_step_s"] = r.measured_step.base();
  j["replayed_step_s"] = r.replayed_step.base();
  j["error"] = r.error;
  j["host_bound"] = r.host_bound;
  j["controls"] = {{"scale_0", r.scale_0.base()}, {"scale_2", r.scale_2.base()}};
  if (r.next_step_error >= 0) {
    j["next_step"] = {{"error", r.next_step_error},
                      {"naive_error", r.last_step_error},
                      {"naive_median_error", r.median_step_error}};
  } else {
    j["next_step"] = nullptr;
  }
  j["kernel_start_error_s"] = {{"p50", r.kernel_start_p50.base()},
                               {"p95", r.kernel_start_p95.base()}};
  j["last_end_error"] = r.last_end_error;
  for (const studies::ReplayedRank& k : r.by_rank) {
    j["busy_s"].push_back(k.busy.base());
    j["measured_busy_s"].push_back(k.measured_busy.base());
    j["exposed_communication_s"].push_back(k.exposed_communication.base());
    j["measured_exposed_communication_s"].push_back(k.measured_exposed_communication.base());
  }
  j["stripped_wait_s"] = r.stripped_wait.base();
  if (r.changed_step) {
    j["what_if"] = {{"step_s", r.changed_step->base()},
                    {"unchanged_step_s", r.unchanged_step->base()},
                    {"ratio", r.change},
                    {"replay_error", r.error},
                    {"doubtful", !r.doubts.empty()},
                    {"doubts", r.doubts}};
    if (r.changed_share) {
      j["what_if"]["device_time_changed"] = r.changed_share->device;
      j["what_if"]["host_time_changed"] = r.changed_share->host;
    }
    for (const studies::ReplayedRank& k : r.changed_by_rank) {
      j["what_if"]["busy_s"].push_back(k.busy.base());
      j["what_if"]["exposed_communication_s"].push_back(k.exposed_communication.base());
    }
  }
  j["dropped_records"] = r.dropped_records;
  j["warnings"] = r.warnings;
  return j;
}

void print_csv(const std::vector<std::pair<std::string, studies::Replay>>& all, std::ostream& out) {
  out << csv_line({"trace", "ranks", "steps", "measured_step_s", "replayed_step_s", "error",
                   "host_bound", "scale_0_s", "scale_2_s", "next_step_error", "last_step_error",
                   "median_step_error", "kernel_start_p50_s", "kernel_start_p95_s",
                   "last_end_error", "changed_step_s", "dropped_records"});
  const auto number = [](double v) { return fmt::format("{:.9g}", v); };
  for (const auto& [name, r] : all) {
    const bool next = r.next_step_error >= 0;
    out << csv_line({name, std::to_string(r.ranks), std::to_string(r.steps),
                     number(r.measured_step.base()), number(r.replayed_step.base()),
                     number(r.error), r.host_bound ? "true" : "false", number(r.scale_0.base()),
                     number(r.scale_2.base()), next ? number(r.next_step_error) : "",
                     next ? number(r.last_step_error) : "", next ? number(r.median_step_error) : "",
                     number(r.kernel_start_p50.base()), number(r.kernel_start_p95.base()),
                     number(r.last_end_error), r.changed_step ? number(r.changed_step->base()) : "",
                     std::to_string(r.dropped_records)});
  }
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
    network = config::load_system(options.network, {context.library});
    study.change.network = &network;
  }
  Device device;
  if (!options.device.empty()) {
    device = config::load_device(options.device, {context.library});
    study.change.device = &device;
  }
  std::vector<std::pair<std::string, studies::Replay>> all;
  for (const std::string& path : options.traces) {
    all.emplace_back(path,
                     told_as("--ranks", [&] { return studies::replay(read_run(path, options.mark), study); }));
  }
  switch (options.format) {
    case OutputFormat::kText:
      for (std::size_t i = 0; i < all.size(); ++i) {
        std::cout << (i > 0 ? "\n" : "");
        print_text(all[i].first, all[i].second, std::cout);
      }
      break;
    case OutputFormat::kJson: {
      nlohmann::ordered_json j;
      j["stepcast"] = provenance_json();
      j["replays"] = nlohmann::ordered_json::array();
      for (const auto& [name, r] : all) {
        j["replays"].push_back(to_json(name, r));
      }
      std::cout << j.dump(2) << '\n';
      break;
    }
    case OutputFormat::kCsv:
      print_csv(all, std::cout);
      break;
  }
  const bool doubtful = std::any_of(all.begin(), all.end(),
                                    [](const auto& r) { return !r.second.doubts.empty(); });
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
  command->add_option("--drop", options->drops, "Ops of this kind, class or name, or host, cost nothing")
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
