#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>

#include "cli/command.h"
#include "cli/support/command_tree.h"
#include "cli/support/output_files.h"
#include "cli/version.h"
#include "core/error.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

/// Text as roff takes it: a backslash and hyphens stand for themselves, no line begins with a
/// control character.
std::string roff(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\') {
      safe += "\\e";
    } else if (c == '-') {
      safe += "\\-";
    } else {
      safe += c;
    }
  }
  return safe.starts_with('.') || safe.starts_with('\'') ? "\\&" + safe : safe;
}

std::string value_of(const OptionNode& o) {
  if (!o.takes_value) {
    return "";
  }
  return o.choices.empty()
             ? " \\fIVALUE\\fR"
             : fmt::format(" \\fI{}\\fR", roff(fmt::format("{}", fmt::join(o.choices, "|"))));
}

std::string entry_of(const OptionNode& o) {
  std::string text = ".TP\n";
  if (o.names.empty()) {
    text += fmt::format("\\fI{}\\fR{}", roff(o.place), o.repeats ? "..." : "");
    if (!o.choices.empty()) {
      text += ": " + roff(fmt::format("{}", fmt::join(o.choices, ", ")));
    }
  } else {
    text +=
        fmt::format("\\fB{}\\fR{}", roff(fmt::format("{}", fmt::join(o.names, ", "))), value_of(o));
  }
  text += "\n" + roff(o.help);
  if (o.required) {
    text += " (required)";
  }
  for (const auto& [word, others] :
       {std::pair{"Needs ", &o.needs}, std::pair{"Not with ", &o.excludes}}) {
    if (!others->empty()) {
      text += fmt::format(". {}{}", word, roff(fmt::format("{}", fmt::join(*others, ", "))));
    }
  }
  return text + "\n";
}

std::string synopsis(const std::string& title, const CommandNode& page) {
  std::string text = fmt::format("\\fB{}\\fR", roff(title));
  if (!page.commands.empty()) {
    text += " \\fICOMMAND\\fR";
  }
  for (const OptionNode& o : page.options) {
    if (o.names.empty()) {
      text += fmt::format(" {}\\fI{}\\fR{}{}", o.required ? "" : "[", roff(o.place),
                          o.repeats ? "..." : "", o.required ? "" : "]");
    }
  }
  return text + " [\\fIOPTIONS\\fR]";
}

constexpr const char* kExitStatus = R"(.SH EXIT STATUS
.TP
0
done
.TP
1
a check said no: out of bounds, regressed, infeasible, does not fit
.TP
2
bad input or usage
.TP
3
the environment lacks something asked for
.TP
4
a run failed while running
.TP
5
the data allow no verdict
.TP
70
a defect of stepcast
)";

struct ManualOptions {
  std::string command, out;
};

}  // namespace

std::string manual_name(const CommandNode& program, const CommandNode& page) {
  return page.name == program.name ? program.name + ".1"
                                   : fmt::format("{}-{}.1", program.name, page.name);
}

std::string manual_page(const CommandNode& program, const CommandNode& page) {
  const bool whole = page.name == program.name;
  const std::string title = whole ? program.name : program.name + " " + page.name;
  const std::string name = whole ? program.name : program.name + "-" + page.name;
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"{} {}\" \"{}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n", name, program.name,
      kVersion, program.name, roff(name), roff(page.help), synopsis(title, page));
  if (!page.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandNode& c : page.commands) {
      text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(c.name), roff(c.help));
    }
  }
  text += ".SH OPTIONS\n";
  for (const OptionNode& o : page.options) {
    text += entry_of(o);
  }
  text += kExitStatus;
  text += ".SH SEE ALSO\n";
  std::vector<std::string> others;
  for (const CommandNode& c : whole ? program.commands : std::vector<CommandNode>{program}) {
    const std::string file = manual_name(program, c);
    others.push_back(fmt::format("\\fB{}\\fR(1)", roff(file.substr(0, file.size() - 2))));
  }
  return text + fmt::format("{}\n", fmt::join(others, ", "));
}

void add_manual(CLI::App& app, Context&) {
  auto options = std::make_shared<ManualOptions>();
  CLI::App* command =
      app.add_subcommand("man", "The manual page of stepcast or of one of its commands");
  command->add_option("command", options->command, "A command; without one, the program itself");
  command->add_option("--out", options->out, "Write all pages to this folder")
      ->check(output_folder());
  command->callback([options, &app] {
    const CommandNode program = command_tree(app);
    std::vector<CommandNode> pages = program.commands;
    pages.insert(pages.begin(), program);
    if (!options->out.empty()) {
      std::filesystem::create_directories(options->out);
      for (const CommandNode& page : pages) {
        write_whole_file(std::filesystem::path(options->out) / manual_name(program, page),
                         manual_page(program, page));
      }
      return;
    }
    const std::string& wanted = options->command.empty() ? program.name : options->command;
    for (const CommandNode& page : pages) {
      if (page.name == wanted) {
        std::cout << manual_page(program, page);
        return;
      }
    }
    throw InputError("man: " + wanted, "is no command; `stepcast --help` lists them all");
  });
}

}  // namespace stepcast::cli
