#include <sys/auxv.h>

#include <iostream>

#include "cli/command.h"
#include "cli/completion.h"
#include "cli/doctor.h"
#include "cli/print/terminal_text.h"
#include "cli/support/command_line.h"
#include "cli/support/console.h"
#include "cli/support/help.h"
#include "cli/support/output_options.h"
#include "core/config/catalogue.h"
#include "interop/import.h"

namespace {

namespace fs = std::filesystem;
using stepcast::cli::Context;

/// The data files are installed next to the executable (share/stepcast) or in the source tree it
/// was built from.
fs::path find_library(const fs::path& executable) {
  const fs::path installed = executable.parent_path().parent_path() / "share" / "stepcast";
  return fs::is_directory(installed / "workloads" / "zoo") ? installed
                                                           : fs::path(STEPCAST_SOURCE_DIR);
}

}  // namespace

int main(int argc, char** argv) {
  const stepcast::cli::PrintableStream printable_output(std::cout);
  std::cerr.tie(nullptr);  // what is told does not wait for the answer
  CLI::App app{"Forecast a training step before you run it", "stepcast"};
  app.require_subcommand(1);
  app.set_version_flag("--version", stepcast::cli::version_report);
  Context context;
  std::error_code ignored;
  context.executable = fs::read_symlink("/proc/self/exe", ignored);
  if (context.executable.empty()) {  // a root without /proc
    context.executable =
        fs::canonical(reinterpret_cast<const char*>(getauxval(AT_EXECFN)), ignored);
  }
  stepcast::config::Catalogue catalogue;
  context.library = stepcast::interop::library(find_library(context.executable));
  context.library.catalogue = &catalogue;
  context.arguments.assign(argv + 1, argv + argc);

  using namespace stepcast::cli;
  add_predict(app, context);
  add_sweep(app, context);
  add_explain(app, context);
  add_show(app, context);
  add_plan(app, context);
  add_hitcurve(app, context);
  add_replay(app, context);
  add_guard(app, context);
  add_compare(app, context);
  add_job(app, context);
  add_convert(app, context);
  add_run(app, context);
  add_profile(app, context);
  add_calibrate(app, context);
  add_fit(app, context);
  add_validate(app, context);
  add_report(app, context);
  add_web(app, context);
  app.add_subcommand("help", "All commands, or a command's options and examples")
      ->add_option("command", "A command");
  add_list(app, context);
  add_doctor(app, context);
  add_completion(app, context);
  arrange_help(app);
  if (!context.arguments.empty() && context.arguments.front() == "__complete") {
    OutputOptions output;
    output.add_to_commands(app);
    complete(app, context);
    return 0;
  }
  if (context.arguments.empty()) {
    answer() << tour();
    return 0;
  }
  return run_command_line(app, context);
}
