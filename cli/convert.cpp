#include <fmt/format.h>

#include <iostream>

#include "cli/command.h"
#include "core/error.h"
#include "traces/native/native_trace.h"
#include "traces/perfetto/perfetto_writer.h"

namespace stepcast::cli {
namespace {

struct ConvertOptions {
  std::string input, output, to = "perfetto", steps;
  bool anonymize = false;
};

/// "A:B": steps A up to, not including, B.
std::pair<std::int32_t, std::int32_t> step_range(const std::string& text) {
  if (text.empty()) {
    return {0, INT32_MAX};
  }
  std::int32_t first = 0;
  std::int32_t last = 0;
  char extra = 0;
  if (std::sscanf(text.c_str(), "%d:%d%c", &first, &last, &extra) != 2 || first < 0 ||
      last <= first) {
    throw InputError(
        "--steps",
        fmt::format("found '{}'; expected A:B with 0 <= A < B, steps A up to and without B", text));
  }
  return {first, last};
}

template <typename Record>
void keep_steps(std::vector<Record>& records, std::pair<std::int32_t, std::int32_t> range) {
  std::erase_if(
      records, [range](const Record& r) { return r.step < range.first || r.step >= range.second; });
}

int convert(const ConvertOptions& options) {
  if (options.anonymize) {
    throw InputError("--anonymize", "is not implemented in this version");
  }
  if (options.to == "kineto" || options.to == "chakra") {
    throw InputError(
        "--to",
        fmt::format("{} is not implemented in this version; use native or perfetto", options.to));
  }
  if (!traces::is_native(options.input)) {
    throw InputError(
        options.input,
        "is not the folder of a stepcast trace; other formats are not implemented in this version");
  }
  traces::Trace trace = traces::read_native(options.input);
  const auto range = step_range(options.steps);
  for (traces::RankTrace& rank : trace.ranks) {
    keep_steps(rank.ops, range);
    keep_steps(rank.host, range);
    keep_steps(rank.steps, range);
    if (rank.ops.empty()) {
      throw InputError("--steps",
                       fmt::format("'{}' keeps nothing of rank {}", options.steps, rank.rank));
    }
  }
  if (options.to == "native") {
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
  std::uint64_t dropped = 0;
  for (const traces::RankTrace& rank : trace.ranks) {
    dropped += rank.dropped;
  }
  if (dropped > 0) {
    fmt::print(stderr,
               "stepcast: {}: the recorder dropped {} records; they are missing from {} too\n",
               options.input, dropped, options.output);
  }
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, Context& context) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      app.add_subcommand("convert", "Convert a trace: native or Perfetto (Chrome JSON)");
  command->add_option("input", options->input, "Trace folder")->required();
  command->add_option("output", options->output, "File (perfetto) or folder (native)")->required();
  command->add_option("--to", options->to, "native or perfetto")
      ->check(CLI::IsMember({"native", "perfetto", "kineto", "chakra"}));
  command->add_option("--steps", options->steps, "Keep steps A:B");
  command->add_flag("--anonymize", options->anonymize, "Remove names and shapes that identify");
  command->callback([options, &context] { context.exit_code = convert(*options); });
}

}  // namespace stepcast::cli
