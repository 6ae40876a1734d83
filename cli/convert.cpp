#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "cli/command.h"
#include "cli/support/console.h"
#include "cli/support/output_files.h"
#include "cli/support/recordings.h"
#include "cli/support/step_range.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "core/whole_file.h"
#include "interop/import.h"
#include "traces/events/open_native.h"
#include "traces/formats.h"
#include "traces/open_trace.h"

namespace stepcast::cli {
namespace {

struct ConvertOptions {
  std::string input, output, to, steps;
  bool anonymize = false;
  bool quiet = false;  ///< the output is not the user's own file
};

const traces::TraceFormat& format_named(const std::string& name) {
  const auto formats = traces::formats();
  return *std::find_if(formats.begin(), formats.end(),
                       [&name](const traces::TraceFormat& f) { return f.name == name; });
}

void convert_recording(const ConvertOptions& options) {
  const traces::TraceFormat& format = format_named(options.to);
  traces::Recording recording = traces::open_trace(options.input);
  tell_oddities(options.input, recording.all_oddities());
  if (!format.keeps_own || options.anonymize) {
    recording = traces::events_of(std::move(recording));
  }
  if (!options.steps.empty()) {
    const auto [first, last] = step_range(options.steps);
    traces::cut_steps(recording, first, last);
  }
  if (options.anonymize) {
    traces::anonymize(recording);
  }
  for (const traces::Loss& loss : format.write(options.output, recording)) {
    fmt::print(notes(), "stepcast: {}: {} cannot hold and leaves out: {} {}\n",
               options.quiet ? "standard output" : options.output, options.to, loss.count,
               loss.what);
  }
}

/// config.json of a Hugging Face model -> workload, arguments of Megatron-LM -> job.
bool convert_description(const ConvertOptions& options) {
  constexpr std::uintmax_t kLargest = 1U << 20U;  // recordings are larger or folders
  std::error_code error;
  if (!std::filesystem::is_regular_file(options.input, error) ||
      std::filesystem::file_size(options.input, error) > kLargest) {
    return false;
  }
  const config::Source source = config::file_source(options.input);
  if (!interop::describes_model(source)) {
    return false;
  }
  if (!options.steps.empty() || options.anonymize) {
    throw InputError(options.steps.empty() ? "--anonymize" : "--steps",
                     "is for traces, and the input describes a model; leave it out");
  }
  if (!options.to.empty()) {
    throw InputError("--to", fmt::format("found {}, a format of traces, but {} describes a model, "
                                         "of which a workload or job is made; leave it out",
                                         options.to, options.input));
  }
  expect_writable(options.output);
  write_output(options.output, interop::import_to_json(source));
  return true;
}

/// Asked before a long trace is read. A trace is never written over itself: its ranks are read
/// while the result is made.
void check_output(const ConvertOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.input, options.output, error)) {
    throw InputError(options.output, "is the trace that is converted; write to another place");
  }
  if (format_named(options.to).one_file) {
    expect_writable(options.output);
  } else {
    expect_writable_folder(options.output);  // one file where there is one rank
  }
}

/// A file that is made elsewhere first and then goes to standard output whole.
int convert_to_standard_output(ConvertOptions options);

int convert(ConvertOptions options) {
  options.input = trace_file(options.input);
  if (options.output == "-") {
    return convert_to_standard_output(std::move(options));
  }
  if (convert_description(options)) {
    return 0;
  }
  if (options.to.empty()) {
    options.to = "perfetto";
  }
  check_output(options);
  convert_recording(options);
  if (!options.quiet) {
    tell_written(options.output);
  }
  return 0;
}

int convert_to_standard_output(ConvertOptions options) {
  const TemporaryFolder folder("stepcast");
  const std::filesystem::path file = folder.path() / "trace";
  options.output = file.string();
  options.quiet = true;
  convert(options);
  if (std::filesystem::is_directory(file)) {
    throw InputError("-", "the result is a folder of several files; name one");
  }
  answer() << std::ifstream(file, std::ios::binary).rdbuf();
  return 0;
}

/// The formats that can be read, or written.
std::vector<std::string> names_of_formats(bool written) {
  std::vector<std::string> names;
  for (const traces::TraceFormat& f : traces::formats()) {
    if (written ? f.write != nullptr : f.read != nullptr || f.read_folder != nullptr) {
      names.emplace_back(f.name);
    }
  }
  return names;
}

}  // namespace

void add_convert(CLI::App& app, Context& context) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      app.add_subcommand("convert",
                         "Convert a trace of any format, saying what is lost; config.json of a "
                         "Hugging Face model or arguments of Megatron-LM to a workload or job");
  command
      ->add_option("input", options->input,
                   fmt::format("File, folder of ranks, archive, or - for standard input ({})",
                               fmt::join(names_of_formats(false), ", ")))
      ->required();
  command
      ->add_option("output", options->output,
                   "Folder (native; kineto and chakra of several ranks), file, or - for standard "
                   "output; .gz compresses")
      ->required();
  command
      ->add_option("--to", options->to,
                   fmt::format("{} (default: perfetto)", fmt::join(names_of_formats(true), ", ")))
      ->check(CLI::IsMember(names_of_formats(true)));
  command->add_option("--steps", options->steps, "Keep steps A:B");
  command->add_flag("--anonymize", options->anonymize, "Remove names and shapes that identify");
  command->callback([options, &context] { context.exit_code = convert(*options); });
}

}  // namespace stepcast::cli
