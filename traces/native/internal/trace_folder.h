#pragma once
#include <filesystem>

namespace stepcast::traces::internal {

// A folder holds one trace: either `trace.json` (the graph that ran, with its spans) or
// `recording.json` (events of any program), and `rank-R.csv` files that both forms name alike.
constexpr const char* kTraceManifest = "trace.json";
constexpr const char* kRecordingManifest = "recording.json";

/// Errors: InputError where the folder holds a trace of the other form, whose rank files would be
/// overwritten.
void refuse_other_form(const std::filesystem::path& folder, const char* own);

/// Readies a folder for a trace with the manifest `own`: makes it, and removes an older trace of
/// that form, the manifest first, so that what is broken off never looks whole.
/// Errors: InputError as above, or where that cannot be done.
void begin_folder(const std::filesystem::path& folder, const char* own);

}  // namespace stepcast::traces::internal
