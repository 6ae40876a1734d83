#include "validation/traces.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/device_names.h"
#include "core/error.h"
#include "studies/traces/replay.h"
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

Figure count(const char* key, std::uint64_t n) {
  return {key, "", static_cast<double>(n), Figure::As::kCount};
}

/// Figures of a replay, which people read in a table of their own.
void add_figures(const studies::Replay& replay, std::vector<Figure>& to) {
  using As = Figure::As;
  using R = studies::Replay;
  const auto add = [&](const char* key, const char* title, As as, auto value) {
    to.push_back({key, title, value(replay), as, true});
  };
  const auto time = [](Seconds R::*of) { return [of](const R& r) { return (r.*of).base(); }; };
  const auto next = [](double R::*of) {
    return [of](const R& r) {
      return r.next_step_error < 0 ? decltype(Figure::value)(std::monostate{}) : r.*of;
    };
  };
  add("host_bound", "", As::kYes, [](const R& r) { return r.host_bound ? 1.0 : 0; });
  add("controls/scale_0", "x 0", As::kSeconds, time(&R::scale_0));
  add("controls/scale_2", "x 2", As::kSeconds, time(&R::scale_2));
  add("kernel_start_error_s/p50", "begins p50", As::kSeconds, time(&R::kernel_start_p50));
  add("kernel_start_error_s/p95", "p95", As::kSeconds, time(&R::kernel_start_p95));
  add("last_end_error", "last end", As::kSigned, [](const R& r) { return r.last_end_error; });
  add("next_step/error", "next step", As::kShare, next(&R::next_step_error));
  add("next_step/naive_error", "as the last", As::kShare, next(&R::last_step_error));
  add("next_step/naive_median_error", "as the median", As::kShare, next(&R::median_step_error));
}

/// A recorded run: what it holds, and how well it replays.
Row row_of(const std::string& name, traces::Recording opened) {
  const std::shared_ptr<const traces::GraphRun> own = opened.own;
  const traces::Recording recording = traces::events_of(std::move(opened));
  Row row{.id = name};
  std::size_t steps = 0;
  std::uint64_t events = 0, kernels = 0, collectives = 0;
  for (const traces::RankRecording& rank : recording.ranks) {
    const auto complete = rank.records.find("X");
    events += complete != rank.records.end() ? complete->second : rank.events.size();
    kernels += rank.count(traces::EventCategory::kKernel);
    collectives += rank.count(traces::EventCategory::kCollective);
    steps = std::max(steps, rank.steps.size());
  }
  row.more = {count("ranks", recording.ranks.size()), count("steps", steps),
              count("events", events), count("kernels", kernels + collectives),
              count("collectives", collectives)};
  if (recording.ranks.front().timing != traces::Timing::kTimeline) {
    row.skipped = "an execution graph, without times";
  } else if (recording.ranks.size() < 2 && steps < 2) {
    row.skipped = "one step of one rank predicts nothing";
  } else {
    try {
      const studies::Replay replay = studies::replay(
          own != nullptr ? traces::measured_run(*own) : traces::measured_run(recording));
      row.measured = replay.measured_step.base();
      row.predicted = replay.replayed_step.base();
      add_figures(replay, row.more);
      if (replay.unscored) {
        row.skipped = "host-bound";
      }
    } catch (const InputError& e) {
      row.skipped = e.what();
    }
  }
  return row;
}

/// Rows of all runs at or below a path; how many files do not open.
std::size_t add_rows(const fs::path& path, const fs::path& root, std::vector<Row>& rows) {
  const std::string name =
      path == root ? path.filename().string() : fs::relative(path, root).generic_string();
  if (!fs::is_directory(path) || traces::is_run_folder(path)) {
    try {
      rows.push_back(row_of(name, traces::open_trace(path)));
      return 0;
    } catch (const InputError& e) {
      rows.push_back({.id = name, .skipped = e.what()});
      for (const char* key : {"ranks", "steps", "events", "kernels", "collectives"}) {
        rows.back().more.push_back(count(key, 0));
      }
      return 1;
    }
  }
  std::vector<fs::path> files, folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() != ".md") {
      (entry.is_directory() ? folders : files).push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::sort(folders.begin(), folders.end());
  std::size_t closed = 0;
  if (auto recording = as_ranks(path, files)) {
    rows.push_back(row_of(name, std::move(*recording)));
    files.clear();
  }
  for (const auto* paths : {&files, &folders}) {
    for (const fs::path& below : *paths) {
      closed += add_rows(below, root, rows);
    }
  }
  return closed;
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

FigureTable moved_traces(const fs::path& data, const config::Library& library) {
  FigureTable moved{"moved", "device time of a step, moved to another device"};
  if (!fs::is_directory(data)) {
    return moved;
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
        if (from.device == to.device) {
          continue;
        }
        const Device device = config::load_device(to.device, library);
        studies::ReplayOptions options;
        options.library = library;
        options.change.device = &device;
        const studies::Replay replay = studies::replay(from.run, options);
        const Seconds predicted = replay.changed_by_rank.front().busy;
        using As = Figure::As;
        moved.rows.push_back(
            {{{"program", "", program, As::kText},
              {"device", "recorded on", from.device, As::kText},
              {"to", "", to.device, As::kText},
              {"covered", "", replay.changed_share->device},
              {"recorded", "", from.busy.base(), As::kSeconds},
              {"predicted", "", predicted.base(), As::kSeconds},
              {"truth", "recorded there", to.busy.base(), As::kSeconds},
              {"error", "", predicted / to.busy - 1, As::kSigned},
              {"naive_error", "as recorded", from.busy / to.busy - 1, As::kSigned}}});
      }
    }
  }
  return moved;
}

}  // namespace

Suite validate_traces(const fs::path& data, const config::Library& library) {
  if (!fs::exists(data)) {
    throw InputError(data.string(), "does not exist; expected a folder of traces, or a trace");
  }
  Suite suite{.name = "traces",
              .bound = "every file opens; |step error| <= 0.05 of sets that are not host-bound"};
  const std::size_t closed = add_rows(data, data, suite.rows);
  if (suite.rows.empty()) {
    throw InputError(data.string(), "holds no trace");
  }
  suite.groups.push_back(group_of("replayed", suite.rows));
  FigureTable& replays = suite.tables.emplace_back();  // for people; rows have them for programs
  for (const Row& row : suite.rows) {
    if (row.predicted > 0) {
      std::vector<Figure>& shown = replays.rows.emplace_back().more;
      shown.push_back({"", "replayed", row.id, Figure::As::kText});
      std::copy_if(row.more.begin(), row.more.end(), std::back_inserter(shown),
                   [](auto& f) { return f.minor && f.as != Figure::As::kYes; });
      for (Figure& f : shown) {
        f.minor = false;
      }
    }
  }
  suite.pass = closed == 0 && suite.groups.front().errors.worst <= 0.05;
  if (FigureTable moved = moved_traces(data, library); !moved.rows.empty()) {
    suite.tables.push_back(std::move(moved));
  }
  return suite;
}

}  // namespace stepcast::validation
