#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "core/input/input.h"
#include "traces/events/recording.h"
#include "traces/trace.h"

namespace stepcast::traces {

/// Our own trace format, a folder (schema: README.md here): `trace.json` and one
/// `rank-R.csv` per rank. The manifest holds either the graph that our runtime ran, whole, and the
/// rank files its spans; or the names, lanes and tables of the events of any program, and the rank
/// files these events. Nothing that the model holds is lost, to the nanosecond; text, so that a
/// diff can be read.
///
/// Writing is whole or absent: files appear under a temporary name and are renamed. Rank 0 begins:
/// an older trace in the folder is removed, its manifest first. Ranks write their own file; rank 0
/// writes the manifest last, so a folder with a manifest is complete.
/// Errors: InputError where the folder cannot be written.
void begin_trace(const std::filesystem::path& folder);
void write_rank(const std::filesystem::path& folder, const RankTrace& rank);
void write_manifest(const std::filesystem::path& folder, const GraphRun& trace, int ranks);
/// All of it, a run with its graph or events.
void write_recording(const std::filesystem::path& folder, const Recording& recording);

/// Errors: InputError naming file and line, or JSON path, for anything that is not what the format
/// promises; nothing is skipped silently.
Recording read_recording(const std::filesystem::path& folder);
/// The same from wherever the parts are: `open` yields "trace.json" and "rank-R.csv", or throws an
/// InputError where there is none; `label` stands for the folder in errors.
using OpenPart = std::function<Input(const std::string& name)>;
Recording read_recording(const std::string& label, const OpenPart& open);
/// A run of our runtime. Errors: also InputError where the folder holds another program's events.
GraphRun read_native(const std::filesystem::path& folder);
/// True when the folder looks like a native trace (has a manifest).
bool is_native(const std::filesystem::path& folder);

}  // namespace stepcast::traces
