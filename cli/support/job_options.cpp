#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/recordings.h"
#include "core/config/aliases.h"
#include "core/config/config.h"
#include "core/config/default_framework.h"
#include "core/error.h"
#include "studies/plan/searched_plan.h"

namespace stepcast::cli {

namespace {

namespace fs = std::filesystem;

std::string standard_input() {
  if (const char* kept = std::getenv(kStandardInputVariable)) {
    std::ifstream file(kept, std::ios::binary);
    if (!file) {
      throw InputError("standard input", "does not reach this machine; name a file");
    }
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw InputError("standard input",
                     "is empty, expected a job; of several ranks only the first has it: name a "
                     "file there");
  }
  return text;
}

/// True for a word that is spelled as files are: with a folder or with an extension of letters.
/// "llama3.1-8b" is not.
bool spelled_as_file(const std::string& word) {
  const std::string extension = fs::path(word).extension();
  const bool letters = extension.size() > 1 &&
                       std::all_of(extension.begin() + 1, extension.end(), [](unsigned char c) {
                         return std::isalpha(c) != 0 || c == '_';
                       });
  return letters || word.starts_with("/") || word.starts_with(".") || word.ends_with("/");
}

/// A key of the job that has an option of its own; `names` as CLI11 reads them, the last of which
/// is the one that answers use.
struct KeyOption {
  const char *names, *value, *key, *help, *group;
};
constexpr std::array<KeyOption, 15> kKeyOptions{
    {{"--on", "SYSTEM", "system",
      "GPU or system: h100, b200, dgx-h100, a file (`stepcast list systems`)", "Job"},
     {"--gpus,--devices,-n", "N", "devices", "Number of GPUs", "Job"},
     {"-b,--gbs", "N", "batch.global", "Samples of a step, sequences for transformers", "Job"},
     {"--mbs", "N", "batch.micro", "Sequences of a micro-batch", "Job"},
     {"--seq", "N", "batch.sequence", "Tokens of a sequence, such as 8k", "Job"},
     {"--precision", "FORMAT", "formats.compute",
      "Format of matrix products: bf16, fp8, mxfp8, nvfp4, ...", "Job"},
     {"--framework", "NAME", "framework",
      "Training framework, NAME[@RELEASE] (`stepcast list frameworks`)", "Job"},
     {"--tp", "N", "parallel.tensor", "Tensor parallel degree", "Plan"},
     {"--pp", "N", "parallel.pipeline", "Pipeline parallel degree", "Plan"},
     {"--vpp", "N", "parallel.virtual_stages", "Virtual stages of a pipeline rank", "Plan"},
     {"--cp", "N", "parallel.context", "Context parallel degree", "Plan"},
     {"--ep", "N", "parallel.expert", "Expert parallel degree", "Plan"},
     {"--dp", "N", "parallel.data", "Data parallel degree (follows from the others)", "Plan"},
     {"--zero", "N", "parallel.zero", "ZeRO stage 0 to 3; 3 is FSDP", "Plan"},
     {"--recompute", "WHAT", "parallel.recompute",
      "Activations made again: none, selective or full", "Plan"}}};

/// Says what a model of Hugging Face is taken with where nothing else is said.
void tell_assumed(const config::Source& source, const std::vector<std::string>& overrides) {
  if (source.text.find("\"model_type\"") == std::string::npos) {
    return;
  }
  const auto said = [&overrides](const std::string& key) {
    return std::any_of(overrides.begin(), overrides.end(), [&key](const std::string& o) {
      const std::string_view own = config::key_called(std::string_view(o).substr(0, o.find('=')));
      return own == key || own == key.substr(0, key.find('.'));
    });
  };
  std::vector<std::string> assumed;
  for (const auto& [key, text] :
       {std::pair{"system", "dgx-h100 (--on)"},
        std::pair{"batch.global", "4 Mi tokens a step (--gbs)"},
        std::pair{"batch.sequence", "sequences as long as the model's, at most 8k (--seq)"}}) {
    if (!said(key)) {
      assumed.emplace_back(text);
    }
  }
  if (!assumed.empty()) {
    fmt::print(notes(), "stepcast: assumed: {}\n", fmt::join(assumed, ", "));
  }
}

/// The key that a word of the command line says as an option: "--tp", "--tp=8", "-n8".
struct OptionWord {
  std::string key;          ///< "": of none
  bool takes_next = false;  ///< its value is the next word
};
OptionWord option_word(const std::string& word) {
  for (const KeyOption& option : kKeyOptions) {
    for (const std::string& own : CLI::detail::split(option.names, ',')) {
      const bool short_one = own.size() == 2;
      if (word == own || word.starts_with(own + "=") || (short_one && word.starts_with(own))) {
        return {option.key, word == own};
      }
    }
  }
  return {};
}
std::string key_of_setting(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  return equals == std::string::npos
             ? std::string()
             : std::string(config::key_called(std::string_view(setting).substr(0, equals)));
}

}  // namespace

std::string typed_settings(const std::vector<std::string>& settings) {
  std::vector<std::string> options, sets;
  for (const KeyOption& option : kKeyOptions) {
    for (const std::string& setting : settings) {
      const std::string value = setting.substr(setting.find('=') + 1);
      if (key_of_setting(setting) == option.key && !value.starts_with('{')) {
        options.push_back(CLI::detail::split(option.names, ',').back() + ' ' +
                          config::quoted_setting(value));
      }
    }
  }
  for (const std::string& setting : settings) {
    const bool option = std::any_of(kKeyOptions.begin(), kKeyOptions.end(), [&](const auto& o) {
      return key_of_setting(setting) == o.key &&
             !setting.substr(setting.find('=') + 1).starts_with('{');
    });
    if (!option) {
      sets.push_back("--set " + config::quoted_setting(setting));
    }
  }
  options.insert(options.end(), sets.begin(), sets.end());
  return fmt::format("{}", fmt::join(options, " "));
}

std::vector<std::string> without_keys(const std::vector<std::string>& words,
                                      const std::function<bool(const std::string&)>& leave_out) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const OptionWord option = option_word(word);
    const bool set = word == "--set" && i + 1 < words.size();
    const std::string said = set                          ? key_of_setting(words[i + 1])
                             : word.starts_with("--set=") ? key_of_setting(word.substr(6))
                                                          : option.key;
    if (!said.empty() && leave_out(said)) {
      i += set || option.takes_next ? 1 : 0;
    } else {
      kept.push_back(word);
    }
  }
  return kept;
}

std::vector<std::string> without_keys_of(const std::vector<std::string>& settings,
                                         const std::vector<std::string>& words) {
  return without_keys(words, [&settings](const std::string& key) {
    return std::any_of(settings.begin(), settings.end(),
                       [&](const auto& setting) { return key_of_setting(setting) == key; });
  });
}

void add_format_option(CLI::App& command, OutputFormat& format) {
  const auto known = [](std::string& text) {
    const std::vector<std::pair<std::string, OutputFormat>> names{
        {"text", OutputFormat::kText}, {"json", OutputFormat::kJson}, {"csv", OutputFormat::kCsv}};
    const std::string lower = CLI::detail::to_lower(text);
    for (const auto& [name, value] : names) {
      if (lower == name) {
        text = std::to_string(static_cast<int>(value));
        return std::string();
      }
    }
    return fmt::format("found '{}', expected text, json or csv", text);
  };
  command.add_option("--format", format, "How to print; text by default")
      ->transform(CLI::Validator(known, ""))
      ->type_name("text|json|csv");
}

void add_setting_options(CLI::App& command, std::vector<std::string>& overrides) {
  command
      .add_option("--set", overrides,
                  "key=value of the job, such as attention=unfused (`stepcast list keys`); "
                  "repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->group("Job");
  for (const KeyOption& o : kKeyOptions) {
    command
        .add_option_function<std::string>(
            o.names,
            [&overrides, key = std::string(o.key),
             name = CLI::detail::split(o.names, ',').back()](const std::string& value) {
              for (const std::string& set : overrides) {
                if (key_of_setting(set) == key) {
                  throw InputError(
                      name, fmt::format("found {}, and --set {}; leave one out", value, set));
                }
              }
              // Before what --set changes of it: settings are read first, wherever they stand.
              const auto part =
                  std::find_if(overrides.begin(), overrides.end(),
                               [&key](const auto& set) { return set.starts_with(key + "."); });
              overrides.insert(part, key + "=" + value);
            },
            o.help)
        ->type_name(o.value)
        ->group(o.group);
  }
}

void add_job_options(CLI::App& command, JobOptions& options) {
  command
      .add_option("job", options.job,
                  "A built-in model (`stepcast list models`), or a file: job, config.json or "
                  "folder of Hugging Face, Megatron arguments, tables, plan; - for standard "
                  "input")
      ->type_name("MODEL");
  add_setting_options(command, options.overrides);
  add_format_option(command, options.format);
}

config::Source job_source(const JobOptions& options) {
  if (options.job.empty()) {
    if (std::none_of(options.overrides.begin(), options.overrides.end(),
                     [](const std::string& set) {
                       return set.starts_with("workload") || set.starts_with("model=");
                     })) {
      throw InputError("",
                       "say which model, such as `stepcast llama3-8b`, or name a job file "
                       "(`stepcast list models`)");
    }
    return config::text_source("", "--set");
  }
  if (options.job == "-") {
    return config::text_source(standard_input(), "standard input");
  }
  if (console() != nullptr && console()->documents.contains(options.job)) {
    return named_source(options.job);
  }
  fs::path file(options.job);
  std::error_code error;
  if (fs::is_regular_file(file / "config.json", error)) {
    file /= "config.json";
  } else if (fs::exists(file, error) && is_recording(options.job)) {
    throw InputError(options.job,
                     fmt::format("is a recording, not a job; `stepcast job {} --out job.json` "
                                 "writes the job that it was, `stepcast show` and `replay` read it",
                                 config::quoted_setting(options.job)));
  }
  if (!fs::exists(file, error) && options.job.find('=') != std::string::npos) {
    throw InputError(options.job,
                     fmt::format("is no model or file; for a key of the job say --set {}",
                                 config::quoted_setting(options.job)));
  }
  if (!fs::is_regular_file(file, error) && !spelled_as_file(options.job)) {
    return config::text_source(nlohmann::json{{"workload", options.job}}.dump(), options.job);
  }
  config::Source source = named_source(file.string());
  tell_assumed(source, options.overrides);
  return source;
}

Job load_job(const JobOptions& options, const Context& context) {
  return studies::with_searched_plan(
      config::load_job(job_source(options), options.overrides, {context.library}));
}

}  // namespace stepcast::cli
