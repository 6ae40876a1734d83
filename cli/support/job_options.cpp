#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/launch_ranks.h"
#include "cli/support/recordings.h"
#include "core/config/config.h"
#include "core/error.h"
#include "studies/plan/searched_plan.h"

namespace stepcast::cli {

namespace {

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

/// A run that was recorded. A list, which a trace may be too, is rather a mistaken job here.
bool rather_a_recording(const std::string& file) {
  char first = 0;
  return is_recording(file) && !(std::ifstream(file) >> first && first == '[');
}

}  // namespace

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

void add_job_options(CLI::App& command, JobOptions& options) {
  command.add_option("job", options.job,
                     "Job file, or - for standard input; may be left out with --set workload=... "
                     "--set system=... (`stepcast list workloads`, `systems`)");
  command
      .add_option(
          "--set", options.overrides,
          "key=value of the job, such as devices=64 or parallel.tensor=8 (`stepcast list keys`); "
          "repeatable")
      ->allow_extra_args(false);
  add_format_option(command, options.format);
}

config::Source job_source(const JobOptions& options) {
  if (options.job.empty()) {
    if (options.overrides.empty()) {
      throw InputError("--set",
                       "no workload; give a job file, or --set workload=NAME --set system=NAME "
                       "(`stepcast list workloads`, `stepcast list systems`)");
    }
    return config::text_source("", "--set");
  }
  if (options.job == "-") {
    return config::text_source(standard_input(), "standard input");
  }
  const std::filesystem::path file(options.job);
  std::error_code error;
  const bool given = console() != nullptr && console()->documents.contains(options.job);
  if (!given && !file.has_extension() && !std::filesystem::exists(file, error)) {
    throw InputError(options.job, fmt::format("no such file; a built-in workload is chosen by "
                                              "--set workload={} (`stepcast list workloads`)",
                                              options.job));
  }
  if (!given && rather_a_recording(options.job)) {
    throw InputError(options.job,
                     fmt::format("is a recording, not a job; `stepcast job {} --out job.json` "
                                 "writes the job that it was, `stepcast show` and `replay` read it",
                                 options.job));
  }
  return named_source(options.job);
}

Job load_job(const JobOptions& options, const Context& context) {
  return studies::with_searched_plan(
      config::load_job(job_source(options), options.overrides, {context.library}));
}

}  // namespace stepcast::cli
