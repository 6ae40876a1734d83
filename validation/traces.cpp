#include "validation/traces.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/device_names.h"
#include "core/error.h"
#include "traces/events/open_native.h"
#include "traces/formats.h"
#include "traces/measured_step.h"
#include "traces/open_trace.h"

namespace stepcast::validation {
namespace {

namespace fs = std::filesystem;
using traces::Nanoseconds;

std::string without_digits(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return name;
}

bool overlap(const traces::Recording& recording) {
  Nanoseconds first_end = Nanoseconds::max(), last_begin = Nanoseconds::min();
  for (const traces::RankRecording& rank : recording.ranks) {
    Nanoseconds begin = Nanoseconds::max(), end = Nanoseconds::min();
    for (traces::EventId e = 0; e < rank.events.size(); ++e) {
      begin = std::min(begin, rank.events.begin[e]);
      end = std::max(end, rank.events.end(e));
    }
    first_end = std::min(first_end, end);
    last_begin = std::max(last_begin, begin);
  }
  return last_begin < first_end || recording.ranks.front().timing != traces::Timing::kTimeline;
}

/// The files of a folder as one run, if they are.
std::optional<traces::Recording> as_ranks(const fs::path& folder,
                                          const std::vector<fs::path>& files) {
  std::set<std::string> names;
  for (const fs::path& f : files) {
    names.insert(without_digits(f.filename().string()));
  }
  if (files.size() < 2 || names.size() != 1) {
    return std::nullopt;
  }
  try {
    traces::Recording recording = traces::open_trace(folder);
    return overlap(recording) ? std::optional(std::move(recording)) : std::nullopt;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

TraceSet set_of(const std::string& name, traces::Recording opened) {
  TraceSet set;
  set.name = name;
  const std::shared_ptr<const traces::GraphRun> own = opened.own;
  const traces::Recording recording = traces::events_of(std::move(opened));
  set.ranks = static_cast<std::int64_t>(recording.ranks.size());
  for (const traces::RankRecording& rank : recording.ranks) {
    const auto complete = rank.records.find("X");
    set.events += complete != rank.records.end() ? complete->second : rank.events.size();
    set.kernels +=
        rank.count(traces::EventCategory::kKernel) + rank.count(traces::EventCategory::kCollective);
    set.collectives += rank.count(traces::EventCategory::kCollective);
    set.steps = std::max(set.steps, static_cast<std::int64_t>(rank.steps.size()));
  }
  if (recording.ranks.front().timing != traces::Timing::kTimeline) {
    set.skipped = "an execution graph, without times";
    return set;
  }
  if (set.ranks < 2 && set.steps < 2) {
    set.skipped = "one step of one rank predicts nothing";
    return set;
  }
  try {
    set.replay = studies::replay(own != nullptr ? traces::measured_run(*own)
                                                : traces::measured_run(recording));
    if (set.replay->unscored) {
      set.skipped = "host-bound";
    }
  } catch (const InputError& e) {
    set.skipped = e.what();
  }
  return set;
}

void add_sets(const fs::path& path, const fs::path& root, std::vector<TraceSet>& sets) {
  const std::string name =
      path == root ? path.filename().string() : fs::relative(path, root).generic_string();
  const auto add_opened = [&] {
    try {
      sets.push_back(set_of(name, traces::open_trace(path)));
    } catch (const InputError& e) {
      TraceSet set;
      set.name = name;
      set.opens = false;
      set.skipped = e.what();
      sets.push_back(std::move(set));
    }
  };
  if (!fs::is_directory(path) || traces::is_run_folder(path)) {
    add_opened();
    return;
  }
  std::vector<fs::path> files, folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".md") {
      (entry.is_directory() ? folders : files).push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::sort(folders.begin(), folders.end());
  if (auto recording = as_ranks(path, files)) {
    sets.push_back(set_of(name, std::move(*recording)));
  } else {
    for (const fs::path& f : files) {
      add_sets(f, root, sets);
    }
  }
  for (const fs::path& f : folders) {
    add_sets(f, root, sets);
  }
}

/// By program: the devices it was recorded on, and where.
std::map<std::string, std::map<std::string, fs::path>> programs_by_device(const fs::path& data) {
  std::map<std::string, std::map<std::string, fs::path>> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(data)) {
    const std::string name = entry.path().filename().string();
    const std::size_t end = name.find('_');
    if (entry.is_regular_file() && end != std::string::npos && end > 0) {
      files[name.substr(end + 1)][name.substr(0, end)] = entry.path();
    }
  }
  std::erase_if(files, [](const auto& f) { return f.second.size() < 2; });
  return files;
}

/// A program as recorded on one of its devices.
struct OnDevice {
  traces::MeasuredRun run;
  std::string device;
  Seconds busy;
};

}  // namespace

std::vector<MovedTrace> moved_traces(const fs::path& data, const config::Library& library) {
  std::vector<MovedTrace> all;
  if (!fs::is_directory(data)) {
    return all;
  }
  for (const auto& [program, files] : programs_by_device(data)) {
    std::vector<OnDevice> runs;
    for (const auto& [prefix, file] : files) {
      try {
        const traces::Recording recording = traces::open_trace(file);
        const auto& devices = recording.ranks.front().devices;
        const auto device = devices.empty() ? std::nullopt : device_named(devices.front());
        if (device && device->device.starts_with(prefix)) {
          OnDevice on{traces::measured_run(recording), std::string(device->device), {}};
          on.busy = studies::replay(on.run).by_rank.front().measured_busy;
          runs.push_back(std::move(on));
        }
      } catch (const InputError&) {  // listed among the runs, with the reason
        continue;
      }
    }
    for (const OnDevice& from : runs) {
      for (const OnDevice& to : runs) {
        if (from.device != to.device) {
          const Device device = config::load_device(to.device, library);
          studies::ReplayOptions options;
          options.library = library;
          options.change.device = &device;
          const studies::Replay moved = studies::replay(from.run, options);
          all.push_back({program, from.device, to.device, from.busy,
                         moved.changed_by_rank.front().busy, to.busy, moved.changed_share->device});
        }
      }
    }
  }
  return all;
}

std::vector<TraceSet> replay_sets(const fs::path& data) {
  if (!fs::exists(data)) {
    throw InputError(data.string(), "does not exist; expected a folder of traces, or a trace");
  }
  std::vector<TraceSet> sets;
  add_sets(data, data, sets);
  if (sets.empty()) {
    throw InputError(data.string(), "holds no trace");
  }
  return sets;
}

}  // namespace stepcast::validation
