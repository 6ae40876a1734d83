#pragma once
#include <filesystem>
#include <span>
#include <string_view>

#include "core/input/input.h"
#include "traces/events/edit.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// A format of traces: how it is told, read and written; null where it is not. Told by content,
/// never by name.
struct TraceFormat {
  std::string_view name;  ///< as `convert --to` takes it
  std::string_view description;
  /// Files of one rank or several: by their first bytes for certain, and where no format is
  /// certain.
  bool (*is_file)(std::string_view head) = nullptr;
  bool (*may_be_file)(std::string_view head) = nullptr;
  std::vector<RankRecording> (*read)(Input& input, Names& names) = nullptr;
  /// Formats of execution graphs that may stand beside the timeline of the same step: adds to the
  /// timeline what the graph knows.
  void (*link)(RankRecording& timeline, const RankRecording& graph) = nullptr;
  /// Folders that hold a run.
  bool (*is_folder)(const std::filesystem::path& folder) = nullptr;
  Recording (*read_folder)(const std::filesystem::path& folder) = nullptr;
  Losses (*write)(const std::filesystem::path& out, const Recording& recording) = nullptr;
  bool one_file = false;   ///< `out` is a file; else also a folder of ranks
  bool keeps_own = false;  ///< writes a run of our own runtime with its graph; else events alone
};

/// Every format, in the order in which they are asked: the one place that lists them.
std::span<const TraceFormat> formats();

/// Does a path hold a trace, rather than a job or a report: what a format is certain of, an
/// archive, a compressed file that a format may be of, a folder that holds one of these.
bool is_trace(const std::filesystem::path& path);
/// A folder that holds one run in a format of folders.
bool is_run_folder(const std::filesystem::path& folder);

}  // namespace stepcast::traces
