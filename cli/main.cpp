#include <fmt/format.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <new>

#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/print/terminal_text.h"
#include "core/config/suggest.h"
#include "core/error.h"
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

int fail(int code, std::string_view what) {
  fmt::print(stderr, "stepcast: {}\n", stepcast::cli::printable(what));
  return code;
}

/// What was printed is only done once it has arrived: a full disk shows when it is flushed.
int after_output(int code) {
  if (std::cout.flush() && std::fflush(stdout) == 0) {
    return code;
  }
  return fail(code != 0 ? code : 4,
              "standard output: cannot be written to the end; check that it has room");
}

/// The one place that turns an error into an exit code.
template <typename Run>
int with_exit_code(const Run& run) {
  try {
    return run();
  } catch (const stepcast::InputError& e) {
    return fail(2, e.what());
  } catch (const stepcast::EnvironmentError& e) {
    return fail(3, e.what());
  } catch (const stepcast::RunError& e) {
    return fail(4, e.what());
  } catch (const std::bad_alloc&) {
    return fail(4, "out of memory");
  } catch (const fs::filesystem_error& e) {
    return fail(e.code() == std::errc::no_space_on_device ? 4 : 2, e.what());
  } catch (const std::exception& e) {
    return fail(70, fmt::format("internal error: {}\nThis is a defect of stepcast; please report "
                                "it with the command that caused it.",
                                e.what()));
  }
}

/// What the command line has left over: options no command has, and words without a place.
[[noreturn]] void refuse_extras(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.back();
  const std::vector<std::string> left = command.remaining();
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      known.push_back("--" + name);
    }
  }
  const auto first = std::find_if(left.begin(), left.end(),
                                  [](const std::string& word) { return word.starts_with("-"); });
  const std::string help =
      "stepcast " + (chosen.empty() ? "" : command.get_name() + " ") + "--help";
  if (first == left.end()) {
    throw stepcast::InputError(left.empty() ? "" : left.front(),
                               fmt::format("has no place here; `{}` says what is expected", help));
  }
  const std::string meant =
      stepcast::config::nearest_name(first->substr(0, first->find('=')), known);
  throw stepcast::InputError(
      *first, fmt::format("is no option of {}; {}`{}` lists them all",
                          chosen.empty() ? "stepcast" : command.get_name(),
                          meant.empty() ? "" : fmt::format("did you mean {}? ", meant), help));
}

}  // namespace

int main(int argc, char** argv) {
  const stepcast::cli::PrintableStream printable_output(std::cout);
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
  context.library = stepcast::interop::library(find_library(context.executable));
  context.arguments.assign(argv + 1, argv + argc);

  using namespace stepcast::cli;
  add_predict(app, context);
  add_sweep(app, context);
  add_plan(app, context);
  add_run(app, context);
  add_calibrate(app, context);
  add_fit(app, context);
  add_compare(app, context);
  add_explain(app, context);
  add_replay(app, context);
  add_profile(app, context);
  add_show(app, context);
  add_list(app, context);
  add_hitcurve(app, context);
  add_job(app, context);
  add_kernel(app, context);
  add_convert(app, context);
  add_validate(app, context);
  add_report(app, context);
  add_doctor(app, context);
  add_completion(app, context);
  add_manual(app, context);

  return with_exit_code([&] {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ExtrasError&) {
      refuse_extras(app);
    } catch (const CLI::ParseError& e) {
      if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
        throw stepcast::InputError(argv[1], "is no command; `stepcast --help` lists them all");
      }
      if (e.get_exit_code() == 0) {  // --help, --version
        (void)app.exit(e, std::cout, std::cerr);
        return after_output(0);
      }
      const std::vector<CLI::App*> chosen = app.get_subcommands();
      throw stepcast::InputError(
          "", fmt::format("{}; `stepcast {}--help` says what is expected", e.what(),
                          chosen.empty() ? "" : chosen.back()->get_name() + " "));
    }
    return after_output(context.exit_code);
  });
}
