#include <emscripten.h>
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bindings/web/timeline.h"
#include "cli/command.h"
#include "cli/predict.h"
#include "cli/print/print_choice.h"
#include "cli/print/print_prediction.h"
#include "cli/support/command_line.h"
#include "cli/support/console.h"
#include "cli/support/framework_export.h"
#include "core/config/catalogue.h"
#include "interop/import.h"

// Calls of the page: commands as they are typed, and the drawing of a step. Texts in, texts out;
// the answer stays valid until the next call.

// The page's worker sets Module.onProgress; told at most twenty times a second.
EM_JS(void, tell_progress, (double share, const char* note), {
  const now = Date.now();
  if (!Module["onProgress"] || now - (Module["told"] || 0) < 50) return;
  Module["told"] = now;
  Module["onProgress"](share, UTF8ToString(note));
});

namespace {

using stepcast::cli::Context;

/// The page's script puts the data files there before the first call.
constexpr const char* kLibrary = "/stepcast";

Context context_of(const char* arguments) {
  static stepcast::config::Catalogue catalogue;  // a page's module lives as long as its worker
  Context context;
  context.library = stepcast::interop::library(kLibrary);
  context.library.catalogue = &catalogue;
  context.arguments = nlohmann::json::parse(arguments).get<std::vector<std::string>>();
  return context;
}

/// Answers as `predict --format json`, but where the step does not fit nothing is searched that
/// would, and the job is told without its fitted constants, most of that document: what the page
/// shows first.
int forecast(const stepcast::cli::JobOptions& options, const Context& context) {
  auto of = stepcast::cli::predicted(options, context, {});
  of.prediction.job.system.fitted = {};
  of.prediction.job.system.device.fitted = {};
  of.prediction.job.system.framework = {};
  stepcast::cli::Report report(stepcast::cli::OutputFormat::kJson);
  add_prediction(of.prediction,
                 {of.framework, !of.default_framework.empty(), true,
                  [&] { return stepcast::config::job_to_json(of.prediction.job, -1); }},
                 report);
  add_choice(of.choice, report);
  report.print(stepcast::cli::answer());
  return 0;
}

/// The launch script or configuration of a framework for a job.
void add_script(CLI::App& app, Context& context) {
  auto options = std::make_shared<stepcast::cli::JobOptions>();
  auto framework = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("script");
  add_job_options(*command, *options);
  command->add_option("--for", *framework)->required();
  command->callback([options, framework, &context] {
    const auto of = stepcast::cli::predicted(*options, context, {});
    stepcast::cli::answer() << stepcast::cli::text_for(stepcast::cli::framework_named(*framework),
                                                       of.job);
  });
}

/// The job or workload that a text of another tool describes, as JSON.
void add_described(CLI::App& app, Context&) {
  auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("described");
  command->add_option("file", *file)->required();
  command->callback([file] {
    stepcast::cli::answer() << stepcast::interop::import_to_json(
        stepcast::config::file_source(*file));
  });
}

void add_forecast(CLI::App& app, Context& context) {
  auto options = std::make_shared<stepcast::cli::JobOptions>();
  CLI::App* command = app.add_subcommand("forecast");
  add_job_options(*command, *options);
  command->callback([options, &context] { context.exit_code = forecast(*options, context); });
}

}  // namespace

extern "C" {

/// `arguments`: a JSON list, as after the executable's name; beside its commands `forecast`,
/// `timeline` (timeline.h), `described` and `script`, which the page alone asks for. The answer:
/// the exit code, an end of line, what the command prints. Errors go to the error stream.
const char* stepcast_run(const char* arguments) {
  static std::string text;
  std::ostringstream output;
  const stepcast::cli::Console console{
      &output,
      &std::cerr,
      [](double share, const std::string& note) { tell_progress(share, note.c_str()); },
      {}};
  const stepcast::cli::ConsoleScope scope(console);
  CLI::App app{"Forecast a training step before you run it", "stepcast"};
  app.require_subcommand(1);
  Context context = context_of(arguments);
  for (const auto add :
       {stepcast::cli::add_predict, stepcast::cli::add_sweep, stepcast::cli::add_plan,
        stepcast::cli::add_explain, stepcast::cli::add_list, stepcast::cli::add_timeline,
        add_forecast, add_described, add_script}) {
    add(app, context);
  }
  const int code = stepcast::cli::run_command_line(app, context);
  text = fmt::format("{}\n", code) + output.str();
  return text.c_str();
}
}
