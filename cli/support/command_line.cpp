#include "cli/support/command_line.h"

#include <fmt/ostream.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "cli/print/terminal_text.h"
#include "cli/support/console.h"
#include "core/config/job_keys.h"
#include "core/config/suggest.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

int fail(int code, std::string_view what) {
  fmt::print(notes(), "stepcast: {}\n", printable(what));
  return code;
}

/// Flushes the output: what was printed is only done once it has arrived, and a full disk shows
/// then.
int after_output(int code) {
  if (answer().flush() && std::fflush(stdout) == 0) {
    return code;
  }
  return fail(code != 0 ? code : 4,
              "standard output: cannot be written to the end; check that it has room");
}

template <typename Run>
int with_exit_code(const Run& run) {
  try {
    return run();
  } catch (const InputError& e) {
    return fail(2, e.what());
  } catch (const EnvironmentError& e) {
    return fail(3, e.what());
  } catch (const RunError& e) {
    return fail(4, e.what());
  } catch (const std::bad_alloc&) {
    return fail(4, "out of memory");
  } catch (const std::filesystem::filesystem_error& e) {
    return fail(e.code() == std::errc::no_space_on_device ? 4 : 2, e.what());
  } catch (const std::exception& e) {
    return fail(70, fmt::format("internal error: {}\nThis is a defect of stepcast; please report "
                                "it with the command that caused it.",
                                e.what()));
  }
}

/// Key of the job that was typed as an option: "--devices", "--batch-size", "--tp".
/// Its path; empty where no key is called so.
std::string key_meant_by(std::string option) {
  option.erase(0, option.find_first_not_of('-'));
  option.resize(std::min(option.size(), option.find('=')));
  std::replace(option.begin(), option.end(), '-', '_');
  const std::string_view meant = config::meant_by_shorthand(option);
  const std::string name(meant.empty() ? option : meant);
  for (const config::JobKey& key : config::job_keys()) {
    for (const char* owner : {"", "parallel.", "batch."}) {
      if (key.path == owner + name) {
        return key.path;
      }
    }
  }
  return {};
}

/// Rejects what the command line has left over: options no command has, and words without a place.
[[noreturn]] void reject_extras(const CLI::App& app) {
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
    throw InputError(left.empty() ? "" : left.front(),
                     fmt::format("has no place here; `{}` says what is expected", help));
  }
  const std::string name = chosen.empty() ? "stepcast" : command.get_name();
  const bool takes_job = std::find(known.begin(), known.end(), "--set") != known.end();
  if (const std::string key = takes_job ? key_meant_by(*first) : ""; !key.empty()) {
    throw InputError(
        *first, fmt::format("is no option of {}, but a key of the job: --set {}=...", name, key));
  }
  const std::string meant = config::nearest_name(first->substr(0, first->find('=')), known);
  throw InputError(*first,
                   fmt::format("is no option of {}; {}`{}` lists them all", name,
                               meant.empty() ? "" : fmt::format("did you mean {}? ", meant), help));
}

/// No command, or one that there is not.
[[noreturn]] void reject_command(const CLI::App& app, const std::vector<std::string>& given) {
  if (given.empty()) {
    throw InputError("",
                     "say what to do, such as `stepcast predict --set workload=llama3-8b --set "
                     "system=dgx-h100`; `stepcast --help` lists the commands");
  }
  std::vector<std::string> known;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    known.push_back(command->get_name());
  }
  const std::string meant = config::nearest_name(given.front(), known);
  throw InputError(given.front(),
                   fmt::format("is no command; {}`stepcast --help` lists them all",
                               meant.empty() ? "" : fmt::format("did you mean {}? ", meant)));
}

}  // namespace

int run_command_line(CLI::App& app, const Context& context) {
  return with_exit_code([&] {
    try {
      app.parse(std::vector<std::string>(context.arguments.rbegin(), context.arguments.rend()));
    } catch (const CLI::ExtrasError&) {
      reject_extras(app);
    } catch (const CLI::ParseError& e) {
      if (const auto& given = context.arguments;
          app.get_subcommands().empty() && (given.empty() || !given.front().starts_with('-'))) {
        reject_command(app, given);
      }
      if (e.get_exit_code() == 0) {  // --help, --version
        (void)app.exit(e, answer(), notes());
        return after_output(0);
      }
      const std::vector<CLI::App*> chosen = app.get_subcommands();
      throw InputError("", fmt::format("{}; `stepcast {}--help` says what is expected", e.what(),
                                       chosen.empty() ? "" : chosen.back()->get_name() + " "));
    }
    return after_output(context.exit_code);
  });
}

}  // namespace stepcast::cli
