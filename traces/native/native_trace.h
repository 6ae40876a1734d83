#pragma once
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>

#include "core/input/input.h"
#include "traces/trace.h"

namespace stepcast::traces {

/// Our own trace format, a folder (schema: docs/reference/trace-format.md): `trace.json` with the
/// graph that ran, whole, and one `rank-R.csv` per rank with its spans. Text, so that a diff can be
/// read; nanoseconds, so that no time is lost. Format 2 is written; format 1, whose graph holds ops
/// alone, is read.
///
/// Writing is whole or absent: files appear under a temporary name and are renamed. Rank 0 begins:
/// an older trace in the folder is removed, its manifest first. Ranks write their own file; rank 0
/// writes the manifest last, so a folder with a manifest is complete.
/// Errors: InputError where the folder holds a recording (recording_files.h): its rank files have
/// the same names.
void begin_trace(const std::filesystem::path& folder);
void write_rank(const std::filesystem::path& folder, const RankTrace& rank);
void write_manifest(const std::filesystem::path& folder, const GraphRun& trace, int ranks);
/// Errors: InputError naming file and line for anything that is not what the format promises;
/// nothing is skipped silently.
GraphRun read_native(const std::filesystem::path& folder);
/// The same from wherever the parts are: `open` yields "rank-R.csv", or throws an InputError where
/// there is none; `label` stands for the folder in errors.
using OpenPart = std::function<Input(const std::string& name)>;
GraphRun read_native(std::istream& manifest, const std::string& label, const OpenPart& open);
/// True when the folder looks like a native trace (has a manifest).
bool is_native(const std::filesystem::path& folder);

}  // namespace stepcast::traces
