#include "studies/fit/calibrate.h"

#include <chrono>
#include <filesystem>
#include <functional>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/cuda_backend.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/output_files.h"
#include "cli/support/progress.h"
#include "core/config/config.h"
#include "core/error.h"
#include "runtime/launch.h"

namespace stepcast::cli {
namespace {

struct CalibrateCommand {
  std::string backend = "cpu", out, rows, traces, emulate;
  bool quick = false;
  int ranks = 0;
  double seconds = 0;
  std::uint64_t seed = 1;
  OutputFormat format = OutputFormat::kText;
};

void print_fits(const studies::CalibrationResult& result, std::ostream& out) {
  using Entry = std::pair<std::string, FittedModels::mapped_type>;
  std::vector<Entry> models(result.system.device.fitted.begin(), result.system.device.fitted.end());
  models.insert(models.end(), result.system.fitted.begin(), result.system.fitted.end());
  const auto error = [](double FitError::*of) {
    return [of](auto& m) {
      const FitError& e = m.second.error;
      return e.median > 0 || e.mean > 0 ? share(e.*of) : empty_cell();
    };
  };
  out << fmt::format("{} training jobs measured; errors are those of jobs held out of each fit\n\n",
                     result.configurations);
  table_of("models", "",
           Columns<Entry>{{"model", "", &Entry::first},
                          {"form", "", [](auto& m) { return m.second.form; }, kLeft},
                          {"rows", "", [](auto& m) { return m.second.samples; }},
                          {"median", "", error(&FitError::median)},
                          {"mean", "", error(&FitError::mean)},
                          {"p90", "", error(&FitError::p90)},
                          {"bias", "",
                           [](auto& m) {
                             const FitError& e = m.second.error;
                             return e.median > 0 || e.mean > 0 ? signed_share(e.bias)
                                                               : empty_cell();
                           }}},
           models)
      .print_text(out, terminal_style(out));
}

/// Facts that no op shows: copies, launches, collectives of one device.
std::string facts_json(const runtime::calibration::DeviceSweep& sweep) {
  const auto& f = sweep.facts;
  Json json{{"device", f.name},
            {"versions", f.versions},
            {"memory_bytes", f.memory.base()},
            {"l2_bytes", f.l2.base()},
            {"multiprocessors", f.multiprocessors},
            {"copy_bytes_per_s", f.copy.base()},
            {"launch_s", f.launch},
            {"kernel_gap_s", f.kernel_gap},
            {"graph_node_s", f.graph_node.base()},
            {"event_pair_s", f.event_pair.base()},
            {"ops", sweep.samples.size()},
            {"left_out", sweep.left_out},
            {"transfers", Json::array()},
            {"refused", Json::array()}};
  for (const auto& t : f.transfers) {
    json["transfers"].push_back(
        {{"path", t.path}, {"bytes", t.bytes}, {"median_s", t.median.base()}});
  }
  for (const auto& [what, why] : sweep.rejected) {
    json["refused"].push_back({{"case", what}, {"reason", why}});
  }
  return json.dump(1) + "\n";
}

/// Two thirds of the time for the sweep, on rank 0, and the rest for training jobs on all ranks.
studies::CalibrationResult measure_cuda(const CalibrateCommand& options,
                                        studies::CalibrateOptions calibrate_options,
                                        const Context& context, runtime::MpiSession& session) {
  const double seconds = options.seconds > 0 ? options.seconds : options.quick ? 60 : 420;
  // CUPTI is loaded before the first CUDA call; it records the jobs, not the sweep.
  if (const studies::OpClock clock = op_clock("auto", context, session); clock.cupti != nullptr) {
    clock.cupti->stop({session.rank(), session.size()});
    calibrate_options.op_clock = [&context, &session] {
      return op_clock("auto", context, session);
    };
  }
  calibrate_options.executor = timed_cuda_executors(context, session);
  calibrate_options.seconds = seconds / 3;
  runtime::calibration::DeviceSweep sweep;
  session.rank_zero_does([&] {
    runtime::calibration::SweepOptions sweep_options;
    sweep_options.seed = options.seed;
    sweep_options.seconds = seconds * 2 / 3;
    sweep_options.progress = calibrate_options.progress;
    fmt::print(
        stderr, "{}  jobs          about {:.0f} s of training small models\n",
        plan_text(runtime::calibration::device_cases(options.seed, GB(48)), sweep_options.seconds),
        calibrate_options.seconds);
    sweep = sweep_device(context, sweep_options);
    if (!options.rows.empty()) {  // whatever becomes of the jobs
      std::filesystem::create_directories(options.rows);
      write_output(std::filesystem::path(options.rows) / "device.json", facts_json(sweep));
      write_output(std::filesystem::path(options.rows) / "ops.csv", studies::sweep_csv(sweep));
    }
  });
  return studies::calibrate_cuda(sweep, calibrate_options, session);
}

int measure(const CalibrateCommand& options, const System& emulated, const Context& context,
            runtime::MpiSession& session) {
  Progress progress("calibrating");
  studies::CalibrateOptions calibrate_options;
  calibrate_options.seconds = options.seconds;
  calibrate_options.quick = options.quick;
  calibrate_options.seed = options.seed;
  calibrate_options.emulate = options.emulate.empty() ? nullptr : &emulated;
  calibrate_options.traces = options.traces;
  calibrate_options.date = today();
  calibrate_options.progress = std::ref(progress);
  const studies::CalibrationResult result =
      options.backend == "cuda" ? measure_cuda(options, calibrate_options, context, session)
                                : studies::calibrate_cpu(calibrate_options, session);
  if (session.rank() != 0) {
    return 0;
  }
  if (result.dropped > 0) {
    fmt::print(stderr,
               "stepcast: warning: the recorder lost {} records of the training jobs: gaps between "
               "ops may be fitted too long; calibrate again\n",
               result.dropped);
  }
  write_output(options.out, config::system_to_json(result.system) + "\n");
  if (!options.rows.empty()) {
    std::filesystem::create_directories(options.rows);
    write_output(std::filesystem::path(options.rows) / "ops.csv", result.rows_csv);
  }
  if (options.format == OutputFormat::kJson) {
    answer() << config::system_to_json(result.system) << '\n';
  } else {
    print_fits(result, answer());
  }
  return 0;
}

int calibrate(const CalibrateCommand& options, Context& context) {
  const bool cuda = options.backend == "cuda";
  if (cuda && !options.emulate.empty()) {
    throw InputError("--emulate", "slows down collectives of --backend cpu only; leave it out");
  }
  if (cuda) {
    require_cuda(context);
  }
  const int ranks = options.ranks > 0 ? options.ranks
                    : cuda            ? 1
                                      : std::min(2, runtime::available_cores());
  System emulated;
  if (!options.emulate.empty()) {
    emulated = system_of("--emulate", options.emulate, {context.library});
  }
  const auto session = as_ranks(context, ranks, {.timeout = std::chrono::seconds(60)});
  if (session == nullptr) {
    return context.exit_code;
  }
  return as_one_rank(*session, [&] { return measure(options, emulated, context, *session); });
}

}  // namespace

void add_calibrate(CLI::App& app, Context& context) {
  auto options = std::make_shared<CalibrateCommand>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Measure this machine, fit the models, write a system file");
  command->add_option("--backend", options->backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--quick", options->quick, "Under a minute instead of under five");
  command
      ->add_option("--ranks", options->ranks,
                   "Ranks to measure with (default: 2, or 1 on a single core; cuda: 1)")
      ->check(whole_number(1, 4096));
  command
      ->add_option("--seconds", options->seconds,
                   "Time to measure for (default: 220, cuda 420; with --quick 40, cuda 60)")
      ->check(number_from(5.0, 86400.0));
  command->add_option("--out", options->out, "System file to write")
      ->required()
      ->check(output_file());
  command->add_option("--rows", options->rows, "Folder for the measured rows (CSV)")
      ->check(output_folder());
  command
      ->add_option("--keep-traces", options->traces,
                   "Folder for the traces of the training jobs, as `stepcast fit` reads them")
      ->check(output_folder());
  command->add_option("--seed", options->seed, "Seed of the training jobs that are measured")
      ->check(whole_number(0));
  command->add_option("--emulate", options->emulate,
                      "System whose fabric sets how fast collectives are while measuring");
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = calibrate(*options, context); });
}

}  // namespace stepcast::cli
