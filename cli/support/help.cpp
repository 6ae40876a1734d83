#include "cli/support/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iostream>
#include <memory>
#include <vector>

#include "cli/print/terminal.h"

namespace stepcast::cli {
namespace {

struct CommandHelp {
  const char *group, *command;
  std::vector<const char*> examples;
};

const std::vector<CommandHelp>& commands() {
  static const std::vector<CommandHelp> all{
      {"Forecast",
       "predict",
       {"stepcast llama3-8b", "stepcast llama3-70b -n 64 --tp 8 --pp 2 --gbs 256 --seq 8k --zero 1",
        "stepcast ./config.json --on b200 --json",
        "stepcast llama3-70b -n 512 --tokens 15T --price 2.5"}},
      {"Forecast",
       "sweep",
       {"stepcast sweep llama3-70b -n 64,128,256",
        "stepcast sweep llama3-8b --on h100,b200 --seq 4k,8k --csv"}},
      {"Forecast",
       "diff",
       {"stepcast diff llama3-8b --zero 1 -- --tp 2", "stepcast diff a.json b.json",
        "stepcast diff base-trace now-trace"}},
      {"Forecast",
       "show",
       {"stepcast show trace.json", "stepcast show llama3-8b --flops", "stepcast show dgx-h100"}},
      {"Plan",
       "plan",
       {"stepcast plan llama3-70b -n 64", "stepcast plan llama3-70b -n 64 -o train.sh",
        "stepcast plan tables.csv -n 16 -b 65536 --out plan.json"}},
      {"Plan", "hitcurve", {"stepcast hitcurve indices.npy --html curve.html"}},
      {"Recorded runs",
       "replay",
       {"stepcast replay trace --scale gemm=0.5", "stepcast replay trace --network dgx-b200"}},
      {"Recorded runs",
       "guard",
       {"stepcast guard now-* --baseline base-*",
        "stepcast guard now-* --baseline step.json --junit guard.xml"}},
      {"Recorded runs",
       "compare",
       {"stepcast compare trace", "stepcast compare trace.json llama3-8b -n 8 --zero 3"}},
      {"Recorded runs", "job", {"stepcast job trace.json -o job.json"}},
      {"Recorded runs", "convert", {"stepcast convert trace step.json --to perfetto"}},
      {"Measure",
       "run",
       {"stepcast run dlrm-default --ranks 2 --steps 20 --backend cpu --trace trace"}},
      {"Measure", "profile", {"stepcast profile --out trace -- python train.py"}},
      {"Measure", "calibrate", {"stepcast calibrate --backend cpu --quick --out local-cpu.json"}},
      {"Measure", "fit", {"stepcast fit rows.csv --device h100-sxm-80gb --out fitted.json"}},
      {"Measure", "validate", {"stepcast validate published"}},
      {"Pages", "report", {"stepcast report predict.json plan.json --html report.html"}},
      {"Pages", "web", {"stepcast web --out page"}},
      {"Help", "help", {"stepcast help plan"}},
      {"Help", "list", {"stepcast list models", "stepcast list systems", "stepcast list keys"}},
      {"Help", "doctor", {"stepcast doctor"}},
      {"Help",
       "completion",
       {"stepcast completion bash > ~/.local/share/bash-completion/completions/stepcast"}}};
  return all;
}

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string lines;
  std::size_t column = indent;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find_first_of(" \n", from), text.size());
    const std::size_t length = end - from;
    if (column > indent && column + 1 + length > width) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += text.substr(from, length);
    column += length;
    from = end + 1;
  }
  return lines;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

/// The word for the value of an option.
std::string value_name(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  if (option.get_items_expected_max() == 0) {
    return {};
  }
  if (open != std::string::npos && close != std::string::npos) {
    type = type.substr(open + 1, close - open - 1);
    std::replace(type.begin(), type.end(), ',', '|');
    constexpr std::size_t kLongest = 40;
    return type.size() > kLongest ? "NAME" : type;
  }
  return type.starts_with("INT") || type.starts_with("UINT") ? "N"
         : type.starts_with("FLOAT")                         ? "NUMBER"
                                                             : type.substr(0, type.find(':'));
}

/// The name of what is given by its place.
std::string place_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return upper(type.empty() || type == "TEXT" || type.find('{') != std::string::npos
                   ? option.get_name(true)
                   : type);
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t width) : width_(std::max<std::size_t>(40, width)) {}

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    if (mode == CLI::AppFormatMode::Sub) {
      return make_expanded(app);
    }
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           grouped(app) + make_subcommands(app, mode) + "\n" + make_footer(app);
  }
  /// Options that exclude each other.
  std::string make_expanded(const CLI::App* group) const override {
    std::string text = "\n" + group->get_description() + ":\n";
    for (const CLI::Option* option : group->get_options()) {
      text += option == group->get_help_ptr() ? "" : make_option(option, false);
    }
    return text;
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    const std::string value = value_name(*option);
    const std::string name = positional ? place_name(*option) : option->get_name(false, true);
    return entry(positional || value.empty() ? name : name + " " + value,
                 option->get_description() + (option->get_required() ? " (required)" : ""));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0, width_) + "\n\n";
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = "Usage: " + (name.empty() ? app->get_name() : name);
    if (app->get_parent() == nullptr) {
      return text + " [COMMAND] [MODEL|FILE]... [OPTIONS]\n";
    }
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) {
        const std::string place =
            place_name(*option) + (option->get_expected_max() > 1 ? "..." : "");
        text += option->get_required() ? " " + place : " [" + place + "]";
      }
    }
    return text + " [OPTIONS]\n";
  }
  std::string make_footer(const CLI::App* app) const override {
    return app->get_footer().empty() ? std::string() : app->get_footer() + "\n";
  }

 private:
  /// The job and its plan come first, where answers go last.
  [[nodiscard]] std::string grouped(const CLI::App* app) const {
    std::vector<std::string> groups = app->get_groups();
    const auto rank = [](const std::string& group) {
      return group == "Job" ? 0 : group == "Plan" ? 1 : group == "Output" ? 3 : 2;
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    std::string text;
    for (const std::string& group : groups) {
      const auto options = app->get_options([&group](const CLI::Option* option) {
        return !group.empty() && option->get_group() == group && option->nonpositional();
      });
      text += options.empty() ? "" : make_group(group, false, options);
    }
    return text;
  }
  [[nodiscard]] std::string entry(const std::string& name, const std::string& text) const {
    constexpr std::size_t kColumn = 28;
    std::string line = "  " + name;
    line += line.size() + 2 > kColumn ? '\n' + std::string(kColumn, ' ')
                                      : std::string(kColumn - line.size(), ' ');
    return line + wrapped(text, kColumn, width_) + '\n';
  }

  std::size_t width_;
};

}  // namespace

void arrange_help(CLI::App& app) {
  constexpr std::size_t kWidest = 80;
  const auto formatter =
      std::make_shared<HelpFormatter>(std::min(terminal_style(std::cout).width, kWidest));
  app.formatter(formatter);
  app.footer("`stepcast help COMMAND` has options and examples; `stepcast list` what is built in.");
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    command->formatter(formatter);
    command->footer("");
  }
  for (const CommandHelp& help : commands()) {
    app.get_subcommand(help.command)
        ->group(help.group)
        ->footer(fmt::format("EXAMPLES:\n  {}", fmt::join(help.examples, "\n  ")));
  }
}

std::string tour() {
  return R"(stepcast forecasts a training step before you run it: time, memory, cost.

  stepcast llama3-8b                          time, memory, a plan, on few H100s
  stepcast llama3-70b -n 64 --tp 4 --zero 3   your plan; --on b200: other GPUs
  stepcast ./config.json                      a Hugging Face model, job, tables
  stepcast plan llama3-70b -n 64 -o train.sh  the fastest plan and its script
  stepcast diff llama3-8b -- --tp 2           what a change does, and why
  stepcast show TRACE                         what bounds a recorded step
  stepcast guard NOW... --baseline BASE...    whether a change made it slower
`stepcast help` lists all commands, `stepcast list models` the built-in models.
)";
}

}  // namespace stepcast::cli
