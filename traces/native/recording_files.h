#pragma once
#include <filesystem>

#include "traces/events/recording.h"

namespace stepcast::traces {

constexpr int kRecordingSchema = 1;

/// A recording in our own format, a folder (schema: docs/reference/trace-format.md):
/// `recording.json` with names, lanes and tables, one `rank-R.csv` per rank with its events. Holds
/// everything the model holds, to the nanosecond; text, so that a diff can be read.
///
/// Files appear under a temporary name and are renamed; recording.json comes last, so a folder that
/// has it is whole. An older recording in the folder is removed first.
/// Errors: InputError where the folder cannot be written, or holds a trace of our own runtime
/// (native_trace.h), whose rank files have the same names.
void write_recording(const std::filesystem::path& folder, const Recording& recording);
/// Errors: InputError naming file and line, or JSON path, for anything that is not what the format
/// promises.
Recording read_recording(const std::filesystem::path& folder);
/// True when the folder has a recording.json.
bool is_recording(const std::filesystem::path& folder);

}  // namespace stepcast::traces
