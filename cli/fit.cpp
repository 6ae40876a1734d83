#include "studies/fit/fit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/print/human.h"
#include "cli/print/report.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/recordings.h"
#include "core/config/config.h"
#include "core/error.h"
#include "core/input/csv.h"
#include "models/kernels/transfer.h"
#include "studies/fit/fit_traces.h"
#include "traces/formats.h"

namespace stepcast::cli {
namespace {

namespace fs = std::filesystem;

struct FitCommand {
  std::vector<std::string> inputs;
  std::string device, system, out, framework, date, transfer, mark;
  std::size_t points = 1000;
  bool name_device = false;
  OutputFormat format = OutputFormat::kText;
};

std::string system_text(const FitCommand& options, const System& system) {
  return config::system_to_json(
      system, 2, options.name_device ? config::DeviceAs::kName : config::DeviceAs::kInline);
}

/// A folder with a CSV file anywhere below it holds measurements; any other folder, or a file that
/// is no CSV, is a captured trace.
bool is_data(const fs::path& path) {
  if (traces::is_run_folder(path)) {
    return false;  // although its ranks are CSV files too
  }
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return is_csv_name(path) || !fs::exists(path, error);
  }
  const fs::recursive_directory_iterator files(path, error);
  return !error && std::any_of(begin(files), end(files),
                               [](const fs::directory_entry& e) { return is_csv_name(e.path()); });
}

/// The facts to fit on: the named system with the named device in it.
System base_of(const FitCommand& options, const Context& context) {
  const config::Library library{context.library};
  System base;
  if (!options.system.empty()) {
    base = system_of("--system", options.system, library);
    if (options.device.empty() || options.device == base.device.name) {
      return base;
    }
  }
  base.device = config::load_device(options.device, library);
  return base;
}

/// Errors of rows that a fit has not seen, of the `fit` of a row.
template <class Row, class Fit>
void add_errors(Columns<Row>& columns, Fit fit) {
  using E = FitError;
  for (const auto& [name, of] :
       {std::pair("median", &E::median), std::pair("mean", &E::mean), std::pair("p90", &E::p90),
        std::pair("worst", &E::worst), std::pair("bias", &E::bias)}) {
    columns.emplace_back(name, "", [=, of = of](const Row& r) {
      const std::optional<E> error = fit(r);
      return error ? share((*error).*of) : empty_cell();
    });
  }
}

/// Title of the errors. Those of the fitted rows count if too few configurations are left to hold
/// any out; the model's source says so.
std::string errors_title(const FittedModels& models) {
  std::vector<std::string> fitted, held_out;
  for (const auto& [name, model] : models) {
    if (model.samples > 1) {
      const bool seen = model.source.find("(errors on the fitted rows)") != std::string::npos;
      (seen ? fitted : held_out).push_back(name);
    }
  }
  if (fitted.empty()) {
    return "held-out errors";
  }
  return held_out.empty() ? "errors on the fitted rows"
                          : fmt::format("held-out errors; of {} errors on the fitted rows",
                                        fmt::join(fitted, ", "));
}

DataTable models_table(const studies::FitDataResult& result) {
  using L = studies::FittedLine;
  Columns<L> columns{{"model", "", &L::key, kLeft},
                     {"form", "", [](auto& l) { return l.model.form; }, kLeft},
                     {"rows", "", &L::used},
                     {"skipped", "", &L::skipped},
                     {"points", "", [](auto& l) { return l.model.points.size(); }}};
  add_errors(columns, [](const L& l) { return std::optional(l.model.error); });
  columns.emplace_back("stack", "", &L::framework, kLeft);
  std::vector<L> lines = result.kernels;
  lines.insert(lines.end(), result.collectives.begin(), result.collectives.end());
  FittedModels models;
  for (const L& l : lines) {
    models[l.key] = l.model;
  }
  return table_of("models", errors_title(models), columns, lines);
}

DataTable skipped_table(const std::vector<studies::SkippedRow>& rows) {
  using R = studies::SkippedRow;
  DataTable table =
      table_of("skipped", "rows not used",
               Columns<R>{{"place", "", &R::place}, {"reason", "", &R::reason, kLeft}}, rows,
               rows.empty() ? kInJson : kInText | kInJson);
  table.limit(10);
  return table;
}

void print(const FitCommand& options, const studies::FitDataResult& result) {
  Report report(options.format);
  report.facts({{"device", result.system.device.name},
                {"system", result.system.name},
                {"out", options.out}});
  report.add(models_table(result));
  report.list("files");
  for (const auto& f : result.files) {
    report.item("files", {{"path", f.path}, {"rows", f.rows}});
  }
  report.facts({{"other_devices", result.other_devices},
                {"other_stacks", result.other_frameworks},
                {"stand_ins", result.stand_ins}});
  if (!result.skipped.empty()) {
    report.line();
  }
  report.add(skipped_table(result.skipped));
  report.line();
  for (const auto& [rows, why] :
       {std::pair(result.other_devices, "were taken on other devices"),
        std::pair(result.other_frameworks, "were measured under another stack than --stack"),
        std::pair(result.stand_ins, "measure kernels that only approximate an op kind")}) {
    if (rows > 0) {
      report.line(fmt::format("{} rows {}", rows, why));
    }
  }
  report.print(answer());
}

int fit_data(const FitCommand& options, const Context& context) {
  const System base = base_of(options, context);
  studies::FitDataOptions fit;
  fit.base = base;
  fit.collectives = !options.system.empty();
  fit.framework = options.framework;
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

/// Fitted constants, and those kept from the base file.
DataTable models_table(const studies::FitTracesResult& result, Visibility look) {
  using Entry = std::pair<std::string, FittedModels::mapped_type>;
  std::vector<Entry> fitted;
  for (const auto* models : {&result.system.device.fitted, &result.system.fitted}) {
    std::copy_if(models->begin(), models->end(), std::back_inserter(fitted), [&](const auto& m) {
      return std::find(result.kept.begin(), result.kept.end(), m.first) == result.kept.end();
    });
  }
  Columns<Entry> columns{{"model", "", &Entry::first},
                         {"form", "", [](auto& m) { return m.second.form; }, kLeft},
                         {"rows", "", [](auto& m) { return m.second.samples; }}};
  add_errors(columns, [](const Entry& m) {  // nothing is left to hold out of a single row
    return m.second.samples > 1 ? std::optional(m.second.error) : std::nullopt;
  });
  return table_of("models", errors_title(FittedModels(fitted.begin(), fitted.end())), columns,
                  fitted, look);
}

DataTable traces_table(const studies::FitTracesResult& result) {
  using T = studies::FittedTrace;
  return table_of("traces", "traces",
                  Columns<T>{{"trace", "", &T::folder},
                             {"workload", "", &T::workload, kLeft},
                             {"ranks", "", &T::ranks},
                             {"steps", "", &T::steps},
                             {"used", "", &T::used_steps},
                             {"hash", "", &T::hash}},
                  result.traces, kInText | kInJson);
}

DataTable unexplained_table(const studies::FitTracesResult& result) {
  using U = studies::Unexplained;
  DataTable table = table_of(
      "unexplained", "records not used",
      Columns<U>{
          {"reason", "", &U::reason},
          {"name", "", [](auto& u) { return short_name(u.name); }, kLeft},
          {"count", "", &U::count},
          {"share", "share of time",
           [&](auto& u) { return share(result.seconds > 0 ? u.seconds / result.seconds : 0); }}},
      result.unexplained, result.unexplained.empty() ? kInJson : kInText | kInJson);
  table.limit(20);
  return table;
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
  Report report(options.format);
  report.facts({{"device", result.system.device.name},
                {"system", result.system.name},
                {"out", options.out}});
  report.add(models_table(result, kInJson));  // programs get the models first
  report.add(traces_table(result));
  report.line();
  report.add(models_table(result, kInText | kInCsv));
  report.line();
  report.fact("kept", result.kept);
  report.add(unexplained_table(result));
  if (!result.unexplained.empty()) {
    report.line();
  }
  if (!result.kept.empty()) {
    report.line(fmt::format("taken from the base: {}", fmt::join(result.kept, ", ")));
  }
  report.fact("warnings", result.warnings);
  for (const std::string& w : result.warnings) {
    report.line("warning: " + w);
  }
  report.print(answer());
  return 0;
}

/// Constants of a measured device (with --system: of a measured system) for one that is not.
int transfer(const FitCommand& options, const Context& context) {
  if (!options.inputs.empty()) {
    throw InputError(options.inputs.front(),
                     "cannot be combined with --transfer, which takes constants from a device or "
                     "system file; fit data in a separate call");
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
    const System from = system_of("--transfer", options.transfer, library);
    System system = models::with_transferred(base_of(options, context), from);
    models = system.fitted;
    if (system.device.fitted.empty()) {
      system.device = models::with_transferred(system.device, from.device);
      models.insert(system.device.fitted.begin(), system.device.fitted.end());
    }
    write_output(options.out, system_text(options, system));
  }
  using Entry = std::pair<std::string, FittedModels::mapped_type>;
  Report report(options.format);
  report.facts({{"from", options.transfer}, {"out", options.out}});
  report.add(
      table_of("models", "constants",
               Columns<Entry>{{"model", "", &Entry::first},
                              {"form", "", [](auto& m) { return m.second.form; }, kLeft},
                              {"log sigma", "", [](auto& m) { return share(m.second.log_sigma); }},
                              {"source", "", [](auto& m) { return m.second.source; }, kLeft}},
               std::vector<Entry>(models.begin(), models.end())));
  report.print(answer());
  return 0;
}

/// The one place that tells measured rows from captured traces.
int fit(FitCommand options, const Context& context) {
  const auto data = std::count_if(options.inputs.begin(), options.inputs.end(),
                                  [](const std::string& path) { return is_data(path); });
  const bool of_traces = data == 0 && !options.inputs.empty() && options.transfer.empty();
  if (options.device.empty() && options.system.empty()) {
    if (!of_traces) {
      throw InputError("--device",
                       "is needed: the device the rows were taken on, such as "
                       "h100-sxm-80gb (`stepcast list devices` names them)");
    }
    options.device = recorded_device(open_recording(options.inputs.front()), "--device").device;
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
  if (of_traces) {
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
  command->add_option(
      "data", options->inputs,
      "Tables of measurements (.csv, .csv.gz, .csv.zst), folders of them, or traces");
  command->add_option(
      "--transfer", options->transfer,
      "Instead of data: the measured device (with --system: system) whose "
      "constants --device (--system) takes over, scaled by hardware facts; with both, the "
      "system written holds that device");
  command->add_option("--device", options->device, "Device whose rows are fitted: name or file (default of traces: the one they name)");
  command->add_option("--system", options->system,
                      "System whose collectives are fitted too: name or file");
  command
      ->add_option("--out", options->out,
                   "File to write: a device of tables and --transfer, with --system the system; a "
                   "system of traces")
      ->required()
      ->check(output_file());
  command->add_option("--stack", options->framework,
                      "Software stack, where an op kind was measured on several");
  command->add_option("--mark", options->mark,
                      "Traces of others: the name of the ranges that are steps");
  command->add_option("--date", options->date, "Date written into the models (default: today)");
  command->add_flag(
      "--name-device", options->name_device,
      "A system file names its device, as the built-in ones do, instead of holding it");
  command->add_option("--points", options->points, "Residual points per model")
      ->check(whole_number(0, 5000));
  add_format_option(*command, options->format);
  command->callback([options, &context] { context.exit_code = fit(*options, context); });
}

}  // namespace stepcast::cli
