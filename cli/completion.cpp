#include <fmt/format.h>
#include <fmt/ranges.h>


#include "cli/support/console.h"
#include "cli/command.h"
#include "cli/support/command_tree.h"
#include "cli/support/output_files.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

std::vector<std::string> names(const std::vector<CommandNode>& commands) {
  std::vector<std::string> all;
  for (const CommandNode& c : commands) {
    all.push_back(c.name);
  }
  return all;
}

std::vector<std::string> names(const std::vector<OptionNode>& options) {
  std::vector<std::string> all;
  for (const OptionNode& o : options) {
    all.insert(all.end(), o.names.begin(), o.names.end());
  }
  return all;
}

/// In single quotes of every shell here.
std::string quoted(const std::string& text) {
  return "'" + CLI::detail::find_and_replace(text, "'", "'\\''") + "'";
}

// --- bash: one table of cases; what it does not know completes as a file name.

void bash_command(const CommandNode& c, const std::string& key, std::string& cases) {
  for (const OptionNode& o : c.options) {
    for (const std::string& name : o.names) {
      if (!o.choices.empty()) {
        cases += fmt::format("    {}) words={} ;;\n", quoted(key + " " + name),
                             quoted(fmt::format("{}", fmt::join(o.choices, " "))));
      } else if (o.takes_value) {
        cases += fmt::format("    {}) return ;;\n", quoted(key + " " + name));
      }
    }
  }
  std::vector<std::string> words = names(c.options);
  for (const OptionNode& o : c.options) {
    if (o.names.empty()) {
      words.insert(words.end(), o.choices.begin(), o.choices.end());
    }
  }
  cases += fmt::format("    {}\\ *) words={} ;;\n", quoted(key),
                       quoted(fmt::format("{}", fmt::join(words, " "))));
}

std::string bash(const CommandNode& program) {
  std::string cases;
  for (const CommandNode& c : program.commands) {
    bash_command(c, c.name, cases);
  }
  const std::vector<std::string> commands = names(program.commands);
  return fmt::format(
      R"(# bash completion of {0}
_{0}() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command='' words='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "${{COMP_WORDS[i]}}" in {1}) command="${{COMP_WORDS[i]}}"; break ;; esac
  done
  COMPREPLY=()
  case "$command ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{2}    *) words={3} ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _{0} {0}
)",
      program.name, fmt::join(commands, "|"), cases,
      quoted(
          fmt::format("{} {}", fmt::join(commands, " "), fmt::join(names(program.options), " "))));
}

// --- zsh: _arguments of each command.

std::string zsh_text(std::string text) {
  for (const char* special : {"\\", "[", "]", ":"}) {
    text = CLI::detail::find_and_replace(text, special, std::string("\\") + special);
  }
  return text;
}

std::string zsh_action(const OptionNode& o) {
  return o.choices.empty() ? "_files" : fmt::format("({})", fmt::join(o.choices, " "));
}

std::string zsh_arguments(const CommandNode& c) {
  std::string arguments;
  for (const OptionNode& o : c.options) {
    if (o.names.empty()) {
      arguments += fmt::format(
          " \\\n        {}",
          quoted(fmt::format("{}:{}:{}", o.repeats ? "*" : "", zsh_text(o.place), zsh_action(o))));
    }
    for (const std::string& name : o.names) {
      const std::string value = o.takes_value ? fmt::format(":value:{}", zsh_action(o)) : "";
      arguments += fmt::format(" \\\n        {}",
                               quoted(fmt::format("*{}[{}]{}", name, zsh_text(o.help), value)));
    }
  }
  return arguments;
}

std::string zsh(const CommandNode& program) {
  std::string commands, cases;
  for (const CommandNode& c : program.commands) {
    commands += fmt::format("    {}\n", quoted(zsh_text(c.name) + ":" + zsh_text(c.help)));
    cases += fmt::format("      {})\n        _arguments{} ;;\n", c.name, zsh_arguments(c));
  }
  return fmt::format(
      R"(#compdef {0}
_{0}() {{
  local state line
  local -a commands=(
{1}  )
  _arguments -C{2} \
    '1:command:->command' '*::argument:->arguments'
  case $state in
    command) _describe command commands ;;
    arguments)
      case $words[1] in
{3}      esac ;;
  esac
}}
_{0} "$@"
)",
      program.name, commands, zsh_arguments(program), cases);
}

// --- fish: one line per option.

std::string fish_option(const std::string& program, const std::string& when, const OptionNode& o) {
  std::string line = fmt::format("complete -c {} -n {}", program, quoted(when));
  for (const std::string& name : o.names) {
    line += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2))
                                   : fmt::format(" -s {}", name.substr(1));
  }
  if (o.takes_value && !o.names.empty()) {
    line += " -r";
  }
  if (!o.choices.empty()) {
    line += fmt::format(" -f -a {}", quoted(fmt::format("{}", fmt::join(o.choices, " "))));
  }
  return line + fmt::format(" -d {}\n", quoted(o.help));
}

std::string fish(const CommandNode& program) {
  std::string lines = fmt::format("# fish completion of {}\n", program.name);
  for (const OptionNode& o : program.options) {
    lines += fish_option(program.name, "__fish_use_subcommand", o);
  }
  for (const CommandNode& c : program.commands) {
    lines += fmt::format("complete -c {} -n __fish_use_subcommand -f -a {} -d {}\n", program.name,
                         c.name, quoted(c.help));
    for (const OptionNode& o : c.options) {
      if (!o.names.empty() || !o.choices.empty()) {
        lines += fish_option(program.name, "__fish_seen_subcommand_from " + c.name, o);
      }
    }
  }
  return lines;
}

struct CompletionOptions {
  std::string shell, out;
};

}  // namespace

std::string completion_for(const std::string& shell, const CommandNode& program) {
  return shell == "bash" ? bash(program) : shell == "zsh" ? zsh(program) : fish(program);
}

void add_completion(CLI::App& app, Context&) {
  auto options = std::make_shared<CompletionOptions>();
  CLI::App* command =
      app.add_subcommand("completion", "Completion of commands and options for a shell");
  command->add_option("shell", options->shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_option("--out", options->out, "Write it to this file")->check(output_file());
  command->callback([options, &app] {
    const std::string text = completion_for(options->shell, command_tree(app));
    if (options->out.empty()) {
      answer() << text;
    } else {
      write_whole_file(options->out, text);
    }
  });
}

}  // namespace stepcast::cli
