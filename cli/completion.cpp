#include "cli/completion.h"

#include <algorithm>

#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "core/config/aliases.h"
#include "core/config/job_keys.h"
#include "core/config/published_names.h"
#include "core/whole_file.h"

namespace stepcast::cli {
namespace {

using Words = std::vector<std::string>;

/// The shells ask the program itself: words of the line up to the cursor, the last one unfinished.
/// bash splits them at "=".
constexpr std::string_view kBash = R"sh(# bash completion of stepcast
_stepcast() {
  local IFS=$'\n' word="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=($("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  if [[ ${#COMPREPLY[@]} -gt 0 && $COMP_WORDBREAKS == *=* && ( $word == = || ${COMP_WORDS[COMP_CWORD-1]} == = ) ]]; then
    COMPREPLY=("${COMPREPLY[@]#*=}")
  fi
  [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o bashdefault -o default -F _stepcast stepcast
)sh";
constexpr std::string_view kZsh = R"sh(#compdef stepcast
_stepcast() {
  local -a found=(${(f)"$(${~words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ! $#found )); then
    _files
  elif [[ $found[1] == *= ]]; then
    compadd -S '' -- $found
  else
    compadd -- $found
  fi
}
if [[ $funcstack[1] == _stepcast ]]; then _stepcast "$@"; else compdef _stepcast stepcast; fi
)sh";
constexpr std::string_view kFish = R"sh(# fish completion of stepcast
complete -c stepcast -a '(stepcast __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
)sh";

/// "a", "=", "b" as bash splits them is "a=b".
Words joined(const Words& words) {
  Words all;
  bool open = false;
  for (const std::string& word : words) {
    if (!all.empty() && (open || word == "=")) {
      all.back() += word;
    } else {
      all.push_back(word);
    }
    open = word == "=";
  }
  return all;
}

void append(Words& to, const Words& more) { to.insert(to.end(), more.begin(), more.end()); }

Words models(const config::Library& library) {
  Words all = config::built_in_workloads(library);
  append(all, config::workload_aliases(library));
  return all;
}

Words systems(const config::Library& library) {
  Words all = config::built_in_systems(library);
  append(all, config::system_aliases(library));
  return all;
}

Words frameworks(const config::Library& library) {
  Words all;
  for (const config::Framework& f : config::load_published_names(library).frameworks) {
    const std::string name = f.name.substr(0, f.name.find('@'));
    if (all.empty() || all.back() != name) {
      all.push_back(name);
    }
  }
  return all;
}

/// Values of a key of the job by its path.
Words values_of(std::string_view key, const config::Library& library) {
  if (key == "workload") {
    return models(library);
  }
  if (key == "system") {
    return systems(library);
  }
  if (key == "framework" || key == "stack") {
    return frameworks(library);
  }
  for (const config::JobKey& known : config::job_keys()) {
    if (known.path == key) {
      return known.choices;
    }
  }
  return {};
}

/// Settings: "parallel.tensor=", or with the key there "attention=unfused".
Words settings(const std::string& word, const config::Library& library) {
  Words all;
  if (const std::size_t equals = word.find('='); equals != std::string::npos) {
    const std::string key = word.substr(0, equals);
    for (const std::string& value : values_of(config::key_called(key), library)) {
      all.push_back(key + "=" + value);
    }
    return all;
  }
  for (const config::KeyAlias& a : config::key_aliases()) {
    all.push_back(std::string(a.alias) + "=");
  }
  for (const config::JobKey& key : config::job_keys()) {
    if (key.path.find_first_of("[*") == std::string::npos) {
      all.push_back(key.path + "=");
    }
  }
  return all;
}

/// The values that CLI11 tells as "{a,b,c}" only.
Words choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{');
  const std::size_t close = type.find('}', open);
  return open == std::string::npos || close == std::string::npos
             ? Words{}
             : CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

/// Values of an option, which is of that name.
Words values_of(const CLI::Option& option, const std::string& word,
                const config::Library& library) {
  const std::string name = option.get_name();
  if (name == "--set" || name == "--with") {
    return settings(word, library);
  }
  if (name == "--format") {
    return {"text", "json", "csv"};
  }
  if (name == "--system" || name == "--network" || name == "--emulate") {
    return systems(library);
  }
  const Words choices = choices_of(option);
  const std::string alias = name.substr(name.find_first_not_of('-'));
  return choices.empty() ? values_of(config::key_called(alias), library) : choices;
}

const CLI::Option* option_called(const CLI::App& command, const std::string& word) {
  return word.starts_with('-') ? command.get_option_no_throw(word) : nullptr;
}

/// Options of a command and of its groups of options that exclude each other.
Words option_names(const CLI::App& command) {
  Words all;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (!option->get_group().empty()) {
        all.push_back("--" + name);
      }
    }
  }
  for (const CLI::App* group : command.get_subcommands([](const CLI::App*) { return true; })) {
    append(all, option_names(*group));
  }
  return all;
}

Words candidates(const CLI::App& app, const Words& words, const config::Library& library) {
  const std::string& word = words.back();
  Words commands;
  const CLI::App* command = nullptr;
  for (const CLI::App* one : app.get_subcommands(nullptr)) {
    commands.push_back(one->get_name());
    if (one->check_name(words.front()) || (one->get_name() == "predict" && command == nullptr)) {
      command = one;
    }
  }
  const bool first = words.size() == 1;
  if (command == nullptr) {
    return commands;
  }
  const std::string before = first ? "" : words[words.size() - 2];
  if (const CLI::Option* option = option_called(*command, before);
      option != nullptr && option->get_items_expected_max() > 0) {
    return values_of(*option, word, library);
  }
  if (word.starts_with('-')) {
    return option_names(*command);
  }
  if (words.front() == "help") {
    return commands;
  }
  Words all = first ? commands : Words{};
  for (const CLI::Option* option : command->get_options()) {
    if (option->get_positional()) {
      append(all, choices_of(*option));
    }
  }
  if (command->get_option_no_throw("--tp") != nullptr) {
    append(all, models(library));
  }
  return all;
}

}  // namespace

void complete(const CLI::App& app, const Context& context) {
  const Words words = joined({context.arguments.begin() + 1, context.arguments.end()});
  if (words.empty()) {
    return;
  }
  Words found = candidates(app, words, {context.library});
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  for (const std::string& one : found) {
    if (CLI::detail::to_lower(one).starts_with(CLI::detail::to_lower(words.back()))) {
      answer() << one << '\n';
    }
  }
}

void add_completion(CLI::App& app, Context&) {
  struct Options {
    std::string shell, out;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "completion", "Completion of commands, options, models, keys and values for a shell");
  command->add_option("shell", options->shell, "The shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_option("--out", options->out, "Write it to this file")->check(output_file());
  command->callback([options] {
    const std::string_view text = options->shell == "bash"  ? kBash
                                  : options->shell == "zsh" ? kZsh
                                                            : kFish;
    if (options->out.empty()) {
      answer() << text;
    } else {
      write_whole_file(options->out, text);
    }
  });
}

}  // namespace stepcast::cli
