#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/job/job.h"

namespace stepcast::cli {

/// Context that every subcommand gets from main: where the data files are, how the program was
/// called, and where its exit code goes.
struct Context {
  config::Library library;
  std::filesystem::path executable;
  std::vector<std::string> arguments;  ///< argv[1..], to start ranks with the same command
  int exit_code = 0;
};

enum class OutputFormat { kText, kJson, kCsv };

/// The options of every command that takes a job: a built-in model, a file, `-` for standard input,
/// or nothing with --set workload=...; and its keys, by --set or options of their own.
struct JobOptions {
  std::string job;
  std::vector<std::string> overrides;
  OutputFormat format = OutputFormat::kText;
};
void add_job_options(CLI::App& command, JobOptions& options);
/// --set, and the options of keys that have one.
void add_setting_options(CLI::App& command, std::vector<std::string>& overrides);
/// Settings `key=value` as a user types them, with the option of a key that has one: "--tp 8
/// --set attention=unfused".
std::string typed_settings(const std::vector<std::string>& settings);
/// The words of a command line without those that say a key to leave out: options and --set.
std::vector<std::string> without_keys(const std::vector<std::string>& words,
                                      const std::function<bool(const std::string&)>& leave_out);
/// The same without keys that `settings` say anew.
std::vector<std::string> without_keys_of(const std::vector<std::string>& settings,
                                         const std::vector<std::string>& words);
void add_format_option(CLI::App& command, OutputFormat& format);
/// The text of the job. Standard input is read here: once.
config::Source job_source(const JobOptions& options);
Job load_job(const JobOptions& options, const Context& context);

/// The subcommands, one source file each; main calls them in this order. A new command is one line
/// here and one in main.cpp.
void add_predict(CLI::App& app, Context& context);
void add_sweep(CLI::App& app, Context& context);
void add_plan(CLI::App& app, Context& context);
void add_run(CLI::App& app, Context& context);
void add_calibrate(CLI::App& app, Context& context);
void add_fit(CLI::App& app, Context& context);
void add_compare(CLI::App& app, Context& context);
void add_explain(CLI::App& app, Context& context);
void add_replay(CLI::App& app, Context& context);
void add_guard(CLI::App& app, Context& context);
void add_profile(CLI::App& app, Context& context);
void add_show(CLI::App& app, Context& context);
void add_list(CLI::App& app, Context& context);
void add_hitcurve(CLI::App& app, Context& context);
void add_job(CLI::App& app, Context& context);
void add_convert(CLI::App& app, Context& context);
void add_validate(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_doctor(CLI::App& app, Context& context);
void add_completion(CLI::App& app, Context& context);
void add_web(CLI::App& app, Context& context);

}  // namespace stepcast::cli
