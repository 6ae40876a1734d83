#include "studies/fit/fit_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "core/config/config.h"
#include "core/device_names.h"
#include "core/error.h"
#include "core/fnv1a.h"
#include "models/collectives/collective_form.h"
#include "models/kernels/kernel_form.h"
#include "studies/fit/shadowed_models.h"
#include "studies/traces/shaped_work.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

namespace stepcast::studies {
namespace {

namespace fs = std::filesystem;

/// Over the bytes of files, in order.
std::string hash_of(const std::vector<fs::path>& files) {
  std::uint64_t hash = fnv1a({});
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::array<char, 65536> block{};
    while (in) {
      in.read(block.data(), block.size());
      hash = fnv1a({block.data(), static_cast<std::size_t>(in.gcount())}, hash);
    }
  }
  return fmt::format("{:016x}", hash);
}

/// The manifest of a native trace first, then its ranks in order; else all files, by path.
std::vector<fs::path> files_of(const fs::path& path, std::int64_t native_ranks) {
  std::vector<fs::path> files;
  if (native_ranks > 0) {
    files.push_back(path / "trace.json");
    for (std::int64_t r = 0; r < native_ranks; ++r) {
      files.push_back(path / fmt::format("rank-{}.csv", r));
    }
  } else if (fs::is_directory(path)) {
    for (const fs::directory_entry& e : fs::recursive_directory_iterator(path)) {
      if (e.is_regular_file()) {
        files.push_back(e.path());
      }
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  return files;
}

struct Input {
  fs::path folder;
  traces::GraphRun trace;                      ///< of our own runtime, or
  std::optional<traces::MeasuredRun> capture;  ///< of another program
  std::string hash;
  std::optional<Job> job;
  /// True for our own runtime, on devices.
  [[nodiscard]] bool on_device() const { return !capture && !trace.op_clock.empty(); }
  [[nodiscard]] std::int64_t ranks() const {
    return static_cast<std::int64_t>(capture ? capture->steps.front().ranks.size()
                                             : trace.ranks.size());
  }
};

Input read(const fs::path& folder, const FitTracesOptions& options) {
  if (fs::is_directory(folder) && fs::is_empty(folder)) {
    throw InputError(folder.string(),
                     "holds no trace (it is empty); expected a folder that `stepcast run --trace` "
                     "or `stepcast profile` wrote to its end, or Kineto files of all ranks");
  }
  Input input{folder, {}, {}, {}, {}};
  const traces::Recording recording = traces::open_trace(folder);
  if (recording.own == nullptr) {
    input.capture = traces::measured_run(recording, options.mark);
    input.hash = hash_of(files_of(folder, 0));
    return input;
  }
  input.trace = *recording.own;
  input.hash = hash_of(files_of(folder, input.ranks()));
  if (!input.trace.job.empty()) {
    input.job = config::load_job(
        config::text_source(input.trace.job, (folder / "trace.json").string() + ": job"), {},
        {options.library});
  }
  return input;
}

/// The machine a capture names, where it holds the device that is fitted; else that device alone.
System machine_of(const traces::MeasuredRun& capture, const FitTracesOptions& options,
                  std::int64_t ranks) {
  const auto named = device_named(capture.device);
  if (named && named->device == options.device && !named->system.empty()) {
    return config::load_system(std::string(named->system), {options.library});
  }
  System s;
  s.device = config::load_device(options.device, {options.library});
  s.host.devices = ranks;
  return s;
}

/// The name that the fitted device gets: a new one, or that of the device in a file. What looks
/// like a file is one.
std::string name_of_device(const FitTracesOptions& options) {
  const std::string& given = options.device;
  if (!given.ends_with(".json") && given.find('/') == std::string::npos) {
    return given;
  }
  const config::Library library{options.library};
  try {
    return config::load_device(given, library).name;
  } catch (const InputError&) {
    if (!fs::exists(given)) {
      throw InputError("--device", fmt::format("{} does not exist; give the name that the fitted "
                                               "device gets, or the file of a device",
                                               given));
    }
    std::string system;
    try {
      system = config::load_system(given, library).name;
    } catch (const InputError&) {  // neither: told below as no device
    }
    if (system.empty()) {
      throw;
    }
    throw InputError("--device", fmt::format("{} is the file of system {}; give it with --system, "
                                             "and --device the name of the device",
                                             given, system));
  }
}

/// Facts to fit on. A job may name any system; only one whose ranks share cores describes a machine
/// that the CPU runtime has measured. A run on devices ran on what its job names, as far as is
/// known.
System facts_of(const std::vector<Input>& inputs, const FitTracesOptions& options) {
  std::int64_t ranks = 0;
  for (const Input& i : inputs) {
    ranks = std::max(ranks, i.ranks());
  }
  System s;
  if (options.facts) {
    s = *options.facts;
  } else if (inputs.front().capture) {
    s = machine_of(*inputs.front().capture, options, ranks);
  } else {
    const auto described = std::find_if(inputs.begin(), inputs.end(), [](const Input& i) {
      return i.job && (i.on_device() || i.job->system.host.shares_core);
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
    s.fabric.push_back({.name = inputs.front().capture ? "machine" : "shared-memory",
                        .size = std::max<std::int64_t>(2, ranks),
                        .bandwidth = GBps(1),
                        .latency = microseconds(1)});
  }
  if (s.devices_in_level(s.fabric.size() - 1) < ranks) {
    throw InputError(inputs.front().folder.string(),
                     fmt::format("was recorded on {} ranks, but system {} joins {} devices", ranks,
                                 s.name, s.devices_in_level(s.fabric.size() - 1)));
  }
  const std::string name = name_of_device(options);
  s.device.name = name.empty() ? s.device.name : name;
  s.name = options.system.empty() ? name : options.system;
  return s;
}

/// Replaces the base's answer by what the traces show for the same ops, its more specific models
/// included; the rest of the base stays. Fewer rows than a fit needs replace nothing. `seen` holds
/// the keys of each sort of op in the traces, most specific first.
void keep_base(FittedModels base, const std::set<std::vector<std::string>>& seen,
               FittedModels& fitted, FitTracesResult& result) {
  for (const std::vector<std::string>& keys : seen) {
    const auto first = std::find_if(keys.begin(), keys.end(),
                                    [&](const std::string& k) { return fitted.contains(k); });
    if (first == keys.end()) {
      continue;
    }
    const bool answered = std::any_of(keys.begin(), keys.end(),
                                      [&](const std::string& k) { return base.contains(k); });
    const std::int64_t samples = fitted.at(*first).samples;
    if (answered && samples < static_cast<std::int64_t>(models::kMinimumRows)) {
      result.warnings.push_back(
          fmt::format("{}: {} in the traces; the base's model stays", *first,
                      samples == 1 ? "one row" : fmt::format("{} rows", samples)));
      fitted.erase(*first);
      continue;
    }
    forget_shadowing(base, fitted, keys);
  }
  for (const auto& [key, model] : base) {
    if (fitted.try_emplace(key, model).second) {
      result.kept.push_back(key);
    }
  }
}

void keep_base(System base, const FitRows& rows, FitTracesResult& result) {
  std::set<std::vector<std::string>> kernels, collectives;
  for (const models::MeasuredOp& row : rows.ops) {
    kernels.insert(models::fitted_keys(*row.op));
  }
  for (const models::MeasuredCollective& row : rows.collectives) {
    collectives.insert(models::collective_keys(row.kind, row.format));
  }
  keep_base(std::move(base.device.fitted), kernels, result.system.device.fitted, result);
  keep_base(std::move(base.fitted), collectives, result.system.fitted, result);
}

std::string source_of(const std::vector<FittedTrace>& traces) {
  std::string text =
      fmt::format("stepcast fit, {} traces on {} ranks:", traces.size(), traces.front().ranks);
  for (const FittedTrace& t : traces) {
    text += fmt::format("{} {} ({})", &t == traces.data() ? "" : ",", t.workload, t.hash);
  }
  return text;
}

/// All of one sort, and our own of as many ranks.
void check_alike(const std::vector<Input>& inputs) {
  const Input& first = inputs.front();
  for (const Input& input : inputs) {
    if (input.on_device() != first.on_device()) {
      throw InputError(input.folder.string(),
                       fmt::format("was recorded on {}, {} on {}; fit them in two calls",
                                   input.on_device() ? "devices" : "cores", first.folder.string(),
                                   first.on_device() ? "devices" : "cores"));
    }
    const auto check_kernels = [&](const char* what, const std::string& here,
                                   const std::string& there) {
      if (!here.empty() && !there.empty() && here != there) {
        throw InputError(input.folder.string(),
                         fmt::format("{} computed by {}, in {} by {}; one model describes "
                                     "one of them, so fit them in two calls",
                                     what, here, first.folder.string(), there));
      }
    };
    if (!input.capture && !first.capture) {
      check_kernels("attention was", input.trace.attention, first.trace.attention);
      check_kernels("epilogues were", input.trace.epilogues, first.trace.epilogues);
    }
    if (input.capture.has_value() != first.capture.has_value()) {
      throw InputError(
          input.folder.string(),
          fmt::format("is {}, {} is not; one holds the times of a core's ops, the "
                      "other those of a device's kernels, so fit them in two calls",
                      input.capture ? "a capture of another program" : "a trace of `stepcast run`",
                      first.folder.string()));
    }
    if (!input.capture && input.ranks() != first.ranks()) {
      throw InputError(input.folder.string(),
                       fmt::format("was recorded on {} ranks, {} on {}; ranks share caches and "
                                   "memory, so fit each number of ranks apart",
                                   input.ranks(), first.folder.string(), first.ranks()));
    }
  }
}

/// A copy of a trace tells nothing that the trace does not.
void use_once(std::vector<Input>& inputs, std::vector<std::string>& warnings) {
  const auto repeated =
      std::unique(inputs.begin(), inputs.end(), [&](const Input& a, const Input& b) {
        if (a.hash == b.hash) {
          warnings.push_back(fmt::format("{} is the same recording as {}; it is used once",
                                         b.folder.string(), a.folder.string()));
        }
        return a.hash == b.hash;
      });
  inputs.erase(repeated, inputs.end());
}

void add_capture(FitRows& rows, const Input& input, const System& system, FittedTrace& fitted) {
  fitted.steps = fitted.used_steps = static_cast<std::int64_t>(input.capture->steps.size());
  add_shaped_work(rows, *input.capture, fitted.workload, system);
}

void add_own(FitRows& rows, Input& input, const System& system, FittedTrace& fitted) {
  fitted.steps = static_cast<std::int64_t>(input.trace.ranks.front().steps.size());
  Job job;
  if (input.job) {
    job = std::move(*input.job);
    fitted.workload = job.workload.name;
  }
  job.workload.name = fitted.workload;
  job.system = system;
  ExecutionGraph graph = input.trace.graph;
  fitted.used_steps = add_steps(rows, job, std::move(graph), std::move(input.trace));
  if (fitted.used_steps == 0) {
    throw InputError(input.folder.string(),
                     "holds no step that is whole on every rank; record at least one step after "
                     "the warm-up");
  }
}

/// Rates the rows show, where nothing is known of the hardware; of a known device the links alone.
void measure_facts(System& system, const FitRows& rows, bool device) {
  constexpr std::string_view kUnknownLinks = "machine";
  if (!device) {
    set_measured_rates(system, rows);
  } else if (!rows.collectives.empty() && system.fabric[0].name == kUnknownLinks) {
    set_measured_links(system, rows);
  }
}

}  // namespace

FitTracesResult fit_traces(std::span<const fs::path> folders, const FitTracesOptions& options) {
  if (folders.empty()) {
    throw InputError("fit", "needs at least one trace folder");
  }
  if (options.device.empty() && !options.facts) {
    throw InputError("--device", "is needed: the name that the fitted device gets");
  }
  std::vector<Input> inputs;
  for (const fs::path& folder : folders) {
    inputs.push_back(read(folder, options));
  }
  check_alike(inputs);
  const bool capture = inputs.front().capture.has_value();
  // The answer does not depend on the order in which the traces were named.
  std::stable_sort(inputs.begin(), inputs.end(),
                   [](const Input& a, const Input& b) { return a.hash < b.hash; });
  FitTracesResult result;
  use_once(inputs, result.warnings);
  const System base = facts_of(inputs, options);
  result.system = base;
  result.system.fitted.clear();
  result.system.device.fitted.clear();
  const bool on_device = capture || (inputs.front().on_device() && inputs.front().job);
  if (!on_device) {
    result.system.framework = {};  // the bundled runtime has none
  }
  FitRows rows;
  for (Input& input : inputs) {
    result.traces.push_back({.folder = input.folder.string(),
                             .workload = input.folder.filename().string(),
                             .hash = input.hash,
                             .ranks = input.ranks()});
    FittedTrace& fitted = result.traces.back();
    if (!input.capture) {
      add_own(rows, input, result.system, fitted);
    } else {
      add_capture(rows, input, result.system, fitted);
      result.warnings.insert(result.warnings.end(), input.capture->warnings.begin(),
                             input.capture->warnings.end());
    }
  }
  if (capture && rows.ops.empty()) {
    throw InputError(inputs.front().folder.string(),
                     "tells no kernel's shape, so there is nothing to fit; record it with shapes "
                     "(PyTorch profiler: record_shapes=True)");
  }
  if (!capture) {
    merge_repeats(rows);
  }
  if (!options.facts) {
    measure_facts(result.system, rows, on_device);
  }
  const models::FitOptions fit{.max_points = 600, .source = source_of(result.traces)};
  fit_steps(result.system, rows, fit);
  constexpr std::size_t kFewestSegments = 8;
  if (rows.segments.size() >= kFewestSegments) {
    result.system.device.fitted.merge(models::fit_straggler(rows.segments, fit));
  }
  if (on_device) {
    keep_base(base, rows, result);
  }
  result.rows = std::move(rows.rows);
  result.unexplained = std::move(rows.unexplained);
  result.seconds = rows.seconds;
  return result;
}

}  // namespace stepcast::studies
