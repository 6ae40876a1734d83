#include "studies/fit/fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/data_table.h"
#include "cli/human.h"
#include "cli/output_files.h"
#include "cli/print_prediction.h"
#include "core/config/config.h"
#include "core/error.h"
#include "models/kernels/transfer.h"
#include "studies/fit/fit_traces.h"
#include "traces/native/native_trace.h"

namespace stepcast::cli {
namespace {

namespace fs = std::filesystem;

struct FitCommand {
  std::vector<std::string> inputs;
  std::string device, system, out, stack, date, transfer, mark;
  std::size_t points = 1000;
  bool name_device = false;
  OutputFormat format = OutputFormat::kText;
};

std::string system_text(const FitCommand& options, const System& system) {
  return config::system_to_json(
      system, 2, options.name_device ? config::DeviceAs::kName : config::DeviceAs::kInline);
}

bool is_table(const fs::path& p) {
  return p.extension() == ".csv" || (p.extension() == ".gz" && p.stem().extension() == ".csv");
}

/// A folder with a CSV file anywhere below it holds measurements; any other folder, or a file that
/// is no CSV, is a captured trace.
bool is_data(const fs::path& path) {
  if (traces::is_native(path)) {
    return false;  // although its ranks are CSV files too
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return is_table(path) || !fs::exists(path, error);
  }
  const fs::recursive_directory_iterator files(path, error);
  return !error && std::any_of(begin(files), end(files),
                               [](const fs::directory_entry& e) { return is_table(e.path()); });
}

/// The facts to fit on: the named system with the named device in it.
System base_of(const FitCommand& options, const Context& context) {
  const config::Library library{context.library};
  System base;
  if (!options.system.empty()) {
    base = config::load_system(options.system, library);
    if (options.device.empty() || options.device == base.device.name) {
      return base;
    }
  }
  base.device = config::load_device(options.device, library);
  return base;
}

DataTable models_table(const studies::FitDataResult& result) {
  DataTable table("models", "held-out errors",
                  {{"model", "", true},
                   {"form", "", true},
                   {"rows"},
                   {"skipped"},
                   {"points"},
                   {"median"},
                   {"mean"},
                   {"p90"},
                   {"worst"},
                   {"bias"},
                   {"stack", "", true}});
  for (const auto* lines : {&result.kernels, &result.collectives}) {
    for (const studies::FittedLine& l : *lines) {
      const FitError& e = l.model.error;
      table.row({cell(l.key), cell(l.model.form), cell(l.used), cell(l.skipped),
                 cell(static_cast<std::int64_t>(l.model.points.size())), share(e.median),
                 share(e.mean), share(e.p90), share(e.worst), share(e.bias), cell(l.stack)});
    }
  }
  return table;
}

DataTable skipped_table(const std::vector<studies::SkippedRow>& rows) {
  DataTable table("skipped", "rows not used", {{"place", "", true}, {"reason", "", true}});
  for (const studies::SkippedRow& r : rows) {
    table.row({cell(r.place), cell(r.reason)});
  }
  table.limit(10);
  return table;
}

void print(const FitCommand& options, const studies::FitDataResult& result) {
  const DataTable models = models_table(result);
  const DataTable skipped = skipped_table(result.skipped);
  if (options.format == OutputFormat::kCsv) {
    models.print_csv(std::cout);
    return;
  }
  if (options.format == OutputFormat::kJson) {
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const auto& f : result.files) {
      files.push_back({{"path", f.path}, {"sha256", f.sha256}, {"rows", f.rows}});
    }
    const nlohmann::ordered_json document = {{"stepcast", provenance_json()},
                                             {"device", result.system.device.name},
                                             {"system", result.system.name},
                                             {"out", options.out},
                                             {"models", models.json()},
                                             {"files", files},
                                             {"other_devices", result.other_devices},
                                             {"other_stacks", result.other_stacks},
                                             {"stand_ins", result.stand_ins},
                                             {"skipped", skipped.json()}};
    std::cout << document.dump(2) << '\n';
    return;
  }
  models.print_text(std::cout);
  if (!result.skipped.empty()) {
    std::cout << '\n';
    skipped.print_text(std::cout);
  }
  const auto left_out = [](std::int64_t rows, const char* why) {
    if (rows > 0) {
      std::cout << fmt::format("{} rows {}\n", rows, why);
    }
  };
  std::cout << '\n';
  left_out(result.other_devices, "were taken on other devices");
  left_out(result.other_stacks, "are of another stack than --stack");
  left_out(result.stand_ins, "are of kernels that only stand in for an op kind");
}

int fit_data(const FitCommand& options, const Context& context) {
  const System base = base_of(options, context);
  studies::FitDataOptions fit;
  fit.base = base;
  fit.collectives = !options.system.empty();
  fit.stack = options.stack;
  fit.date = options.date;
  fit.max_points = options.points;
  const std::vector<fs::path> paths(options.inputs.begin(), options.inputs.end());
  const models::MeasuredTable table =
      models::read_measured(paths, {.device = base.device.name, .system = base.name});
  const studies::FitDataResult result = studies::fit_data(table, fit);
  write_output(options.out, options.system.empty() ? config::device_to_json(result.system.device)
                                                   : system_text(options, result.system));
  print(options, result);
  return 0;
}

int fit_traces(const FitCommand& options, const Context& context) {
  studies::FitTracesOptions fit;
  fit.device = options.device;
  fit.system = options.system;
  fit.mark = options.mark;
  fit.library = context.library.root;
  if (!options.system.empty()) {
    fit.facts = base_of(options, context);
    fit.system = fit.facts->name;
  }
  const std::vector<fs::path> folders(options.inputs.begin(), options.inputs.end());
  const studies::FitTracesResult result = studies::fit_traces(folders, fit);
  write_output(options.out, config::system_to_json(result.system));
  DataTable table("models", "held-out errors",
                  {{"model", "", true},
                   {"form", "", true},
                   {"rows"},
                   {"median"},
                   {"mean"},
                   {"p90"},
                   {"worst"},
                   {"bias"}});
  for (const auto* models : {&result.system.device.fitted, &result.system.fitted}) {
    for (const auto& [key, m] : *models) {
      if (std::find(result.kept.begin(), result.kept.end(), key) != result.kept.end()) {
        continue;
      }
      const bool held_out = m.samples > 1;  // nothing is left to hold out of a single row
      const auto error = [held_out](double e) { return held_out ? share(e) : empty_cell(); };
      table.row({cell(key), cell(m.form), cell(m.samples), error(m.error.median),
                 error(m.error.mean), error(m.error.p90), error(m.error.worst),
                 error(m.error.bias)});
    }
  }
  DataTable traces(
      "traces", "traces",
      {{"trace", "", true}, {"workload", "", true}, {"ranks"}, {"steps"}, {"used"}, {"hash"}});
  for (const studies::FittedTrace& t : result.traces) {
    traces.row({cell(t.folder), cell(t.workload), cell(t.ranks), cell(t.steps), cell(t.used_steps),
                cell(t.hash)});
  }
  DataTable unexplained(
      "unexplained", "records not used",
      {{"reason", "", true}, {"name", "", true}, {"count"}, {"share", "share of time"}});
  for (const studies::Unexplained& u : result.unexplained) {
    unexplained.row({cell(u.reason), short_name(u.name), cell(u.count),
                     share(result.seconds > 0 ? u.seconds / result.seconds : 0)});
  }
  unexplained.limit(20);
  if (std::any_of(result.traces.begin(), result.traces.end(),
                  [](const studies::FittedTrace& t) { return t.used_steps < t.steps; })) {
    traces.note(
        "Used is the quieter half of the steps: those no longer than their median. `compare` takes "
        "medians over all steps, at the pace each core had then; rows here are all at one pace.");
  }
  if (options.format == OutputFormat::kJson) {
    const nlohmann::ordered_json document = {
        {"stepcast", provenance_json()}, {"device", result.system.device.name},
        {"system", result.system.name},  {"out", options.out},
        {"models", table.json()},        {"traces", traces.json()},
        {"kept", result.kept},           {"unexplained", unexplained.json()},
        {"warnings", result.warnings}};
    std::cout << document.dump(2) << '\n';
  } else if (options.format == OutputFormat::kCsv) {
    table.print_csv(std::cout);
  } else {
    for (const DataTable* t : {&traces, &table, &unexplained}) {
      if (t != &unexplained || !result.unexplained.empty()) {
        t->print_text(std::cout);
        std::cout << '\n';
      }
    }
    if (!result.kept.empty()) {
      std::cout << fmt::format("kept as the base has them: {}\n", fmt::join(result.kept, ", "));
    }
    for (const std::string& w : result.warnings) {
      std::cout << fmt::format("warning: {}\n", w);
    }
  }
  return 0;
}

/// Constants of a measured device (with --system: of a measured system) for one that is not.
int transfer(const FitCommand& options, const Context& context) {
  if (!options.inputs.empty()) {
    throw InputError(options.inputs.front(),
                     "has no place beside --transfer, which takes constants from a device or "
                     "system file; fit data in a call of its own");
  }
  const config::Library library{context.library};
  FittedModels models;
  if (options.system.empty()) {
    const Device device = models::with_transferred(config::load_device(options.device, library),
                                                   config::load_device(options.transfer, library));
    models = device.fitted;
    write_output(options.out, config::device_to_json(device));
  } else {
    // The system's own device, or the one --device names in its place. Kernels as they are there; a
    // device without any takes those of the other's.
    const System from = config::load_system(options.transfer, library);
    System system = models::with_transferred(base_of(options, context), from);
    models = system.fitted;
    if (system.device.fitted.empty()) {
      system.device = models::with_transferred(system.device, from.device);
      models.insert(system.device.fitted.begin(), system.device.fitted.end());
    }
    write_output(options.out, system_text(options, system));
  }
  DataTable table("models", "constants",
                  {{"model", "", true}, {"form", "", true}, {"log sigma"}, {"source", "", true}});
  for (const auto& [key, m] : models) {
    table.row({cell(key), cell(m.form), share(m.log_sigma), cell(m.source)});
  }
  if (options.format == OutputFormat::kJson) {
    const nlohmann::ordered_json document = {{"stepcast", provenance_json()},
                                             {"from", options.transfer},
                                             {"out", options.out},
                                             {"models", table.json()}};
    std::cout << document.dump(2) << '\n';
  } else if (options.format == OutputFormat::kCsv) {
    table.print_csv(std::cout);
  } else {
    table.print_text(std::cout);
  }
  return 0;
}

/// The one place that tells measured rows from captured traces.
int fit(FitCommand options, const Context& context) {
  if (options.device.empty() && options.system.empty()) {
    throw InputError("--device",
                     "is needed: the device the rows were taken on, such as "
                     "h100-sxm-80gb (`stepcast list devices` names them)");
  }
  if (!options.transfer.empty()) {
    return transfer(options, context);
  }
  if (options.inputs.empty()) {
    throw InputError("data",
                     "is needed: tables of measurements, folders of them, or traces (or "
                     "--transfer with the device to take constants from)");
  }
  options.date = options.date.empty() ? today() : options.date;
  const auto data = std::count_if(options.inputs.begin(), options.inputs.end(),
                                  [](const std::string& path) { return is_data(path); });
  if (data == 0) {
    return fit_traces(options, context);
  }
  if (data != static_cast<std::ptrdiff_t>(options.inputs.size())) {
    throw InputError(*std::find_if(options.inputs.begin(), options.inputs.end(),
                                   [](const std::string& path) { return !is_data(path); }),
                     "is no table of measurements, and the others are; fit tables and traces in "
                     "two calls, the second with --system on the file the first wrote");
  }
  return fit_data(options, context);
}

}  // namespace

void add_fit(CLI::App& app, Context& context) {
  auto options = std::make_shared<FitCommand>();
  CLI::App* command =
      app.add_subcommand("fit", "Fit device and system constants to measured rows or traces");
  command->add_option("data", options->inputs,
                      "Tables of measurements (.csv, .csv.gz), folders of them, or traces");
  command->add_option(
      "--transfer", options->transfer,
      "Instead of data: the measured device (with --system: system) whose "
      "constants --device (--system) takes over, scaled by hardware facts; with both, the "
      "system written holds that device");
  command->add_option("--device", options->device, "Device whose rows are fitted: name or file");
  command->add_option("--system", options->system,
                      "System whose collectives are fitted too: name or file");
  command
      ->add_option("--out", options->out,
                   "File to write: a device of tables and --transfer, with --system the system; a "
                   "system of traces")
      ->required()
      ->check(output_file());
  command->add_option("--stack", options->stack,
                      "Software stack, where an op kind was measured on several");
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  command->add_option("--date", options->date, "Date written into the models (default: today)");
  command->add_flag(
      "--name-device", options->name_device,
      "A system file names its device, as the built-in ones do, instead of holding it");
  command->add_option("--points", options->points, "Residual points kept per model")
      ->check(CLI::Range(0, 5000));
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = fit(*options, context); });
}

}  // namespace stepcast::cli
