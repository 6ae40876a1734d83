#include <emscripten.h>
#include <fmt/format.h>

#include <iostream>

#include "bindings/c/host.h"
#include "bindings/web/timeline.h"
#include "cli/predict.h"
#include "cli/print/print_choice.h"
#include "cli/print/print_prediction.h"
#include "cli/support/console.h"
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

namespace cli = stepcast::cli;
using cli::Context;
using stepcast::host::Host;

/// Answers as `predict --format json`, but where the step does not fit nothing is searched that
/// would, and the job is told without its fitted constants, most of that document: what the page
/// shows first.
void add_forecast(CLI::App& app, Context& context) {
  auto options = std::make_shared<cli::JobOptions>();
  CLI::App* command = app.add_subcommand("forecast");
  add_job_options(*command, *options);
  command->callback([options, &context] {
    auto of = cli::predicted(*options, context, {});
    of.prediction.job.system.fitted = {};
    of.prediction.job.system.device.fitted = {};
    of.prediction.job.system.framework = {};
    cli::Report report(cli::OutputFormat::kJson);
    add_prediction(of.prediction,
                   {of.framework, !of.default_framework.empty(), true,
                    [&] { return stepcast::config::job_to_json(of.prediction.job, -1); }},
                   report);
    add_choice(of.choice, report);
    report.print(cli::answer());
  });
}

/// The job or workload that a text of another tool describes, as JSON.
void add_described(CLI::App& app, Context&) {
  auto file = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("described");
  command->add_option("file", *file)->required();
  command->callback([file] {
    cli::answer() << stepcast::interop::import_to_json(stepcast::config::file_source(*file));
  });
}

/// The page's script puts the data files there before the first call.
constexpr const char* kLibrary = "/stepcast";

}  // namespace

extern "C" {

/// `arguments`: a JSON list, as after the executable's name; beside its commands `forecast`,
/// `timeline` (timeline.h) and `described`, which the page alone asks for. The answer: the exit
/// code, an end of line, what the command prints. Errors go to the error stream.
const char* stepcast_run(const char* arguments) {
  static const Host host(kLibrary, {{"predict", cli::add_predict},
                                    {"sweep", cli::add_sweep},
                                    {"plan", cli::add_plan},
                                    {"explain", cli::add_explain},
                                    {"list", cli::add_list},
                                    {"export", stepcast::host::add_export},
                                    {"timeline", cli::add_timeline},
                                    {"forecast", add_forecast},
                                    {"described", add_described}});
  static std::string text;
  const stepcast::host::Answer answer =
      host.run(host.request(arguments), [](double share, const std::string& note) {
        tell_progress(share, note.c_str());
      });
  std::cerr << answer.notes << std::flush;
  text = fmt::format("{}\n{}", answer.code, answer.text);
  return text.c_str();
}
}
