#include <emscripten.h>
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bindings/web/timeline.h"
#include "cli/command.h"
#include "cli/predict.h"
#include "cli/print/print_prediction.h"
#include "cli/support/command_line.h"
#include "cli/support/console.h"
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
  report.print(stepcast::cli::answer());
  return 0;
}

/// Runs `command` with what it prints as the answer.
template <class Command>
const char* answer_of(const Command& command) {
  static std::string text;
  std::ostringstream output;
  const stepcast::cli::Console console{
      &output,
      &std::cerr,
      [](double share, const std::string& note) { tell_progress(share, note.c_str()); },
      {}};
  const stepcast::cli::ConsoleScope scope(console);
  const int code = command();
  text = fmt::format("{}\n", code) + output.str();
  return text.c_str();
}

}  // namespace

extern "C" {

/// `arguments`: a JSON list, as after the executable's name. The answer: the exit code, an end of
/// line, what the command prints. Errors go to the error stream.
const char* stepcast_run(const char* arguments) {
  return answer_of([&] {
    CLI::App app{"Forecast a training step before you run it", "stepcast"};
    app.require_subcommand(1);
    Context context = context_of(arguments);
    stepcast::cli::add_predict(app, context);
    stepcast::cli::add_sweep(app, context);
    stepcast::cli::add_plan(app, context);
    stepcast::cli::add_explain(app, context);
    stepcast::cli::add_list(app, context);
    return stepcast::cli::run_command_line(app, context);
  });
}

/// `arguments` of a job (JOB, --set): its forecast at once.
const char* stepcast_forecast(const char* arguments) {
  return answer_of([&] {
    CLI::App app{"", "stepcast"};
    Context context = context_of(arguments);
    stepcast::cli::JobOptions options;
    stepcast::cli::add_job_options(app, options);
    app.callback([&] { context.exit_code = forecast(options, context); });
    return stepcast::cli::run_command_line(app, context);
  });
}

/// `arguments` of a job (JOB, --set): what a picture of its step needs, bindings/web/timeline.h.
const char* stepcast_timeline(const char* arguments) {
  return answer_of([&] {
    CLI::App app{"", "stepcast"};
    Context context = context_of(arguments);
    stepcast::cli::add_timeline(app, context);
    return stepcast::cli::run_command_line(app, context);
  });
}
}
