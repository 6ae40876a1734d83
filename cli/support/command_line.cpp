#include "cli/support/command_line.h"

#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <new>

#include "cli/print/terminal_text.h"
#include "cli/support/checks.h"
#include "cli/support/console.h"
#include "cli/support/output_options.h"
#include "cli/support/recordings.h"
#include "core/config/aliases.h"
#include "core/config/job_keys.h"
#include "core/config/lookups/text_ids.h"
#include "core/config/suggest.h"
#include "core/error.h"

namespace stepcast::cli {
namespace {

int fail(int code, std::string_view what) {
  fmt::print(errors(), "stepcast: {}\n", printable(what));
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

/// Errors of keys that were set by an option of their own, or by an alias, name what was typed.
InputError as_typed(const InputError& error, const CLI::App& app,
                    const std::vector<std::string>& arguments) {
  constexpr std::string_view kSet = "--set ";
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!error.where().starts_with(kSet) || chosen.empty()) {
    return error;
  }
  const std::string key = error.where().substr(kSet.size());
  for (const config::KeyAlias& a : config::key_aliases()) {
    if (a.key != key) {
      continue;
    }
    const std::string alias(a.alias);
    const CLI::Option* option =
        chosen.back()->get_option_no_throw((alias.size() == 1 ? "-" : "--") + alias);
    if (option != nullptr && option->count() > 0) {
      return {option->get_name(), error.problem()};
    }
    const auto typed = [&](const std::string& word) { return word.starts_with(alias + "="); };
    if (std::any_of(arguments.begin(), arguments.end(), typed)) {
      return {std::string(kSet) + alias, error.problem()};
    }
  }
  return error;
}

/// Key of the job that was typed as an option: "--devices", "--batch-size". Its path; empty where
/// no key is called so.
std::string key_meant_by(std::string option) {
  option.erase(0, option.find_first_not_of('-'));
  option.resize(std::min(option.size(), option.find('=')));
  std::replace(option.begin(), option.end(), '-', '_');
  const std::string name(config::key_called(option));
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

/// An empty variable of a script is no value: `--resume "$LAST"` would begin anew.
void reject_empty_values(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    for (CLI::Option* option : command->get_options()) {
      if (!option->get_positional()) {
        option->check(not_empty());
      }
    }
  }
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  return names;
}

[[noreturn]] void reject_command(const CLI::App& app, const std::string& word) {
  const std::string meant = config::nearest_name(word, command_names(app));
  throw InputError(word, fmt::format("is no command, model or file; {}`stepcast help` lists "
                                     "commands, `stepcast list models` models",
                                     meant.empty() ? "" : fmt::format("did you mean {}? ", meant)));
}

/// True for a word that is much like a command and names neither a file nor a model.
bool mistyped_command(const CLI::App& app, const std::string& word,
                      const config::Library& library) {
  std::error_code ignored;
  constexpr std::size_t kShortest = 3;
  return word.size() >= kShortest && word.find_first_of("0123456789./") == std::string::npos &&
         !std::filesystem::exists(word, ignored) &&
         config::workload_called(word, library).empty() &&
         !config::nearest_name(word, command_names(app)).empty();
}

/// The command line with its verb: `predict` where there is none, `show` for a recording, and a
/// command's --help for `help` and its name.
std::vector<std::string> with_verb(const CLI::App& app, std::vector<std::string> words,
                                   const config::Library& library) {
  const auto is_command = [&app](const std::string& word) {
    const auto all = app.get_subcommands(nullptr);
    return std::any_of(all.begin(), all.end(),
                       [&word](const CLI::App* command) { return command->check_name(word); });
  };
  if (words.empty() || !is_command("predict")) {
    return words;
  }
  if (words.front() == "help") {
    if (words.size() == 1) {
      return {"--help"};
    }
    if (words[1].starts_with('-')) {
      return words;
    }
    if (!is_command(words[1])) {
      reject_command(app, words[1]);
    }
    return {words[1], "--help"};
  }
  for (const char* own : {"-h", "--help", "--version"}) {
    if (words.front() == own) {
      return words;
    }
  }
  if (!is_command(words.front())) {
    if (!words.front().starts_with('-') && mistyped_command(app, words.front(), library)) {
      reject_command(app, words.front());
    }
    words.insert(words.begin(), "predict");
  }
  std::error_code ignored;
  if (words.front() == "predict" && words.size() > 1 && is_command("show") &&
      !std::filesystem::exists(std::filesystem::path(words[1]) / "config.json", ignored) &&
      is_recording(words[1])) {
    words.front() = "show";
  }
  return words;
}

/// Operands of a command that lacks one; the help of an option that lacks its value.
std::string wanted(CLI::App& command, const CLI::ParseError& e) {
  if (dynamic_cast<const CLI::RequiredError*>(&e) != nullptr) {
    std::string usage = fmt::format(": stepcast {}", command.get_name());
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_positional() && option->get_required()) {
        std::string name = option->get_name(true);
        for (char& c : name) {
          c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
        }
        usage += " " + name;
      }
    }
    return usage;
  }
  const std::string what = e.what();
  const CLI::Option* option = command.get_option_no_throw(what.substr(0, what.find(':')));
  return option == nullptr ? "" : ": " + option->get_description();
}

}  // namespace

int run_command_line(CLI::App& app, const Context& context) {
  return with_exit_code([&] {
    OutputOptions output;
    output.add_to_commands(app);
    reject_empty_values(app);
    for (std::size_t i = 0; i < context.arguments.size(); ++i) {
      if (!config::is_text(context.arguments[i])) {
        throw InputError(fmt::format("argument {}", i + 1),
                         "found bytes that are no UTF-8 text; write names and paths in UTF-8");
      }
    }
    const std::vector<std::string> words = with_verb(app, context.arguments, context.library);
    try {
      app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::ExtrasError&) {
      reject_extras(app);
    } catch (const CLI::ParseError& e) {
      if (app.get_subcommands().empty() && !words.empty() && !words.front().starts_with('-')) {
        reject_command(app, words.front());
      }
      if (e.get_exit_code() == 0) {  // --help, --version
        (void)app.exit(e, answer(), notes());
        return after_output(0);
      }
      const std::vector<CLI::App*> chosen = app.get_subcommands();
      throw InputError("", fmt::format("{}{}; `stepcast {}--help` says what is expected", e.what(),
                                       chosen.empty() ? "" : wanted(*chosen.back(), e),
                                       chosen.empty() ? "" : chosen.back()->get_name() + " "));
    } catch (const InputError& e) {
      throw as_typed(e, app, words);
    }
    output.write("stepcast " + fmt::format("{}", fmt::join(context.arguments, " ")));
    return after_output(context.exit_code);
  });
}

}  // namespace stepcast::cli
