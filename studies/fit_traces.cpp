#include "studies/fit_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "core/config/config.h"
#include "core/error.h"
#include "studies/recorded_graph.h"
#include "traces/native/native_trace.h"
#include "traces/native/recording_files.h"

namespace stepcast::studies {
namespace {

namespace fs = std::filesystem;

/// FNV-1a over the bytes of a trace's files, manifest first, then ranks in order.
std::string hash_of(const fs::path& folder, std::int64_t ranks) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::array<char, 65536> block{};
    while (in) {
      in.read(block.data(), block.size());
      for (std::streamsize i = 0; i < in.gcount(); ++i) {
        hash = (hash ^ static_cast<unsigned char>(block[static_cast<std::size_t>(i)])) *
               0x100000001b3ULL;
      }
    }
  };
  add(folder / "trace.json");
  for (std::int64_t r = 0; r < ranks; ++r) {
    add(folder / fmt::format("rank-{}.csv", r));
  }
  return fmt::format("{:016x}", hash);
}

struct Input {
  fs::path folder;
  traces::Trace trace;
  std::string hash;
  std::optional<Job> job;
};

Input read(const fs::path& folder, const FitTracesOptions& options) {
  if (!fs::is_directory(folder)) {
    throw InputError(folder.string(),
                     "is not a folder; expected one that `stepcast run --trace` wrote");
  }
  if (traces::is_recording(folder)) {
    throw InputError(folder.string(),
                     "is a capture of another program: it says when its kernels ran, not what "
                     "shapes they had; fit needs traces of `stepcast run --trace`, or rows of "
                     "measurements");
  }
  if (!traces::is_native(folder)) {
    throw InputError(folder.string(), fmt::format("holds no trace.json{}; expected a folder that "
                                                  "`stepcast run --trace` wrote to its end",
                                                  fs::is_empty(folder) ? " (it is empty)" : ""));
  }
  Input input{folder, traces::read_native(folder), {}, {}};
  input.hash = hash_of(folder, static_cast<std::int64_t>(input.trace.ranks.size()));
  if (!input.trace.job.empty()) {
    input.job = config::load_job(
        config::text_source(input.trace.job, (folder / "trace.json").string() + ": job"), {},
        {options.library});
  }
  return input;
}

/// Facts to fit on. A job may name any system; only one whose ranks share cores describes a machine
/// that the CPU runtime has measured.
System facts_of(const std::vector<Input>& inputs, const FitTracesOptions& options) {
  const auto ranks = static_cast<std::int64_t>(inputs.front().trace.ranks.size());
  System s;
  if (options.facts) {
    s = *options.facts;
  } else {
    const auto described = std::find_if(inputs.begin(), inputs.end(), [](const Input& i) {
      return i.job && i.job->system.host.shares_core;
    });
    if (described != inputs.end()) {
      s = described->job->system;
    } else {
      s.device.memory = GB(1);
      s.device.source = "a bare core: the traces do not say what machine they come from";
      s.host = {.devices = ranks, .cores = ranks, .shares_core = true};
    }
  }
  if (s.fabric.empty()) {
    s.fabric.push_back({.name = "shared-memory",
                        .size = std::max<std::int64_t>(2, ranks),
                        .bandwidth = GBps(1),
                        .latency = microseconds(1)});
  }
  if (s.devices_in_level(s.fabric.size() - 1) < ranks) {
    throw InputError(inputs.front().folder.string(),
                     fmt::format("was recorded on {} ranks, but system {} joins {} devices", ranks,
                                 s.name, s.devices_in_level(s.fabric.size() - 1)));
  }
  s.device.name = options.device;
  s.name = options.system.empty() ? options.device : options.system;
  s.fitted.clear();
  s.device.fitted.clear();
  return s;
}

std::string source_of(const std::vector<FittedTrace>& traces) {
  std::string text =
      fmt::format("stepcast fit, {} traces on {} ranks:", traces.size(), traces.front().ranks);
  for (const FittedTrace& t : traces) {
    text += fmt::format("{} {} ({})", &t == traces.data() ? "" : ",", t.workload, t.hash);
  }
  return text;
}

}  // namespace

FitTracesResult fit_traces(std::span<const fs::path> folders, const FitTracesOptions& options) {
  if (folders.empty()) {
    throw InputError("fit", "needs at least one trace folder");
  }
  if (options.device.empty()) {
    throw InputError("--device", "is needed: the name that the fitted device gets");
  }
  std::vector<Input> inputs;
  for (const fs::path& folder : folders) {
    inputs.push_back(read(folder, options));
    if (inputs.back().trace.ranks.size() != inputs.front().trace.ranks.size()) {
      throw InputError(folder.string(),
                       fmt::format("was recorded on {} ranks, {} on {}; ranks share caches and "
                                   "memory, so fit each number of ranks apart",
                                   inputs.back().trace.ranks.size(), folders.front().string(),
                                   inputs.front().trace.ranks.size()));
    }
  }
  // The answer does not depend on the order in which the traces were named.
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const Input& a, const Input& b) { return a.hash < b.hash; });
  FitTracesResult result;
  result.system = facts_of(inputs, options);
  StepRows rows;
  for (Input& input : inputs) {
    FittedTrace fitted{.folder = input.folder.string(),
                       .workload = input.folder.filename().string(),
                       .hash = input.hash,
                       .ranks = static_cast<std::int64_t>(input.trace.ranks.size()),
                       .steps = static_cast<std::int64_t>(input.trace.ranks.front().steps.size())};
    ExecutionGraph graph = input.trace.graph;
    Job job;
    if (input.job) {
      job = std::move(*input.job);
      fitted.workload = job.workload.name;
      try {
        graph = rebuilt_graph(input.trace, job);
      } catch (const InputError& e) {
        rows.unexplained.push_back({e.what(), fitted.workload, 1});
      }
    }
    job.workload.name = fitted.workload;
    job.system = result.system;
    fitted.used_steps = add_steps(rows, job, std::move(graph), std::move(input.trace));
    if (fitted.used_steps == 0) {
      throw InputError(input.folder.string(),
                       "holds no step that is whole on every rank; record at least one step after "
                       "the warm-up");
    }
    result.traces.push_back(std::move(fitted));
  }
  if (!options.facts) {
    set_measured_rates(result.system, rows);
  }
  const models::FitOptions fit{.max_points = 600, .source = source_of(result.traces)};
  fit_steps(result.system, rows, fit);
  constexpr std::size_t kFewestSegments = 8;
  if (rows.segments.size() >= kFewestSegments) {
    result.system.device.fitted.merge(models::fit_straggler(rows.segments, fit));
  }
  result.rows = std::move(rows.rows);
  result.unexplained = std::move(rows.unexplained);
  return result;
}

}  // namespace stepcast::studies
