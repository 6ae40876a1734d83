#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>

#include "cli/command.h"
#include "cli/output_files.h"
#include "cli/recordings.h"
#include "cli/step_range.h"
#include "core/error.h"
#include "core/temporary_folder.h"
#include "core/whole_file.h"
#include "interop/import.h"
#include "traces/chakra/chakra_writer.h"
#include "traces/kineto/kineto_writer.h"
#include "traces/native/native_trace.h"
#include "traces/native/recording_files.h"
#include "traces/open_trace.h"
#include "traces/perfetto/perfetto_writer.h"

namespace stepcast::cli {
namespace {

using traces::Losses;
using traces::Oddity;
using traces::Recording;

struct ConvertOptions {
  std::string input, output, to, steps;
  bool anonymize = false;
  bool quiet = false;  ///< the output is not the user's own file
};

template <typename Record>
void keep_steps(std::vector<Record>& records, StepRange range) {
  std::erase_if(records,
                [range](const Record& r) { return r.step < range.first || r.step >= range.last; });
}

/// A trace of our own runtime stays one: with its graph, and waits told from transfers.
void convert_own(const ConvertOptions& options) {
  traces::Trace trace = traces::read_native(options.input);
  const StepRange range =
      options.steps.empty() ? StepRange{0, INT32_MAX} : step_range(options.steps);
  std::uint64_t dropped = 0;
  for (traces::RankTrace& rank : trace.ranks) {
    keep_steps(rank.ops, range);
    keep_steps(rank.host, range);
    keep_steps(rank.steps, range);
    dropped += rank.dropped;
    if (rank.ops.empty()) {
      throw InputError("--steps",
                       fmt::format("'{}' keeps nothing of rank {}", options.steps, rank.rank));
    }
  }
  if (options.to == "native") {
    traces::begin_trace(options.output);
    for (const traces::RankTrace& rank : trace.ranks) {
      traces::write_rank(options.output, rank);
    }
    traces::write_manifest(options.output, trace, static_cast<int>(trace.ranks.size()));
  } else {
    std::vector<OpSpan> ops;
    std::vector<HostSpan> host;
    for (const traces::RankTrace& rank : trace.ranks) {
      ops.insert(ops.end(), rank.ops.begin(), rank.ops.end());
      host.insert(host.end(), rank.host.begin(), rank.host.end());
    }
    traces::write_perfetto(options.output, trace.graph, ops, host, trace.producer);
  }
  if (dropped > 0) {
    fmt::print(stderr,
               "stepcast: {}: the recorder dropped {} records; they are missing from {} too\n",
               options.input, dropped, options.output);
  }
}

Losses write(const ConvertOptions& options, const Recording& recording) {
  if (options.to == "native") {
    traces::write_recording(options.output, recording);
    return {};
  }
  if (options.to == "kineto") {
    return traces::write_kineto(options.output, recording);
  }
  if (options.to == "chakra") {
    return traces::write_chakra(options.output, recording);
  }
  return traces::write_timeline(options.output, recording);
}

void convert_recording(const ConvertOptions& options) {
  Recording recording = traces::open_trace(options.input);
  const traces::Oddities oddities = recording.all_oddities();
  for (std::size_t k = 0; k < static_cast<std::size_t>(Oddity::kCount); ++k) {
    const auto kind = static_cast<Oddity>(k);
    if (oddities[kind].count > 0) {
      fmt::print(stderr, "stepcast: {}: {} {} ({}), e.g. {}\n", options.input, oddities[kind].count,
                 name_of(kind), meaning_of(kind), oddities[kind].example);
    }
  }
  if (!options.steps.empty()) {
    const auto [first, last] = step_range(options.steps);
    traces::cut_steps(recording, first, last);
  }
  if (options.anonymize) {
    traces::anonymize(recording);
  }
  for (const traces::Loss& loss : write(options, recording)) {
    fmt::print(stderr, "stepcast: {}: {} cannot hold and leaves out: {} {}\n", options.output,
               options.to, loss.count, loss.what);
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
  if (options.to == "perfetto") {
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
  const bool keeps_graph = options.to == "native" || options.to == "perfetto";
  if (traces::is_native(options.input) && keeps_graph && !options.anonymize) {
    convert_own(options);
  } else {
    convert_recording(options);
  }
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
  std::cout << std::ifstream(file, std::ios::binary).rdbuf();
  return 0;
}

std::string format_list() {
  std::string list;
  for (const traces::FormatName& f : traces::readable_formats()) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", f.name);
  }
  return list;
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
                   "File, folder of ranks, archive, or - for standard input (" + format_list() + ")")
      ->required();
  command
      ->add_option("output", options->output,
                   "Folder (native; kineto and chakra of several ranks), file, or - for standard "
                   "output; .gz compresses")
      ->required();
  command->add_option("--to", options->to, "native, kineto, chakra or perfetto (default)")
      ->check(CLI::IsMember({"native", "perfetto", "kineto", "chakra"}));
  command->add_option("--steps", options->steps, "Keep steps A:B");
  command->add_flag("--anonymize", options->anonymize, "Remove names and shapes that identify");
  command->callback([options, &context] { context.exit_code = convert(*options); });
}

}  // namespace stepcast::cli
