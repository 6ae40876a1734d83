#pragma once
#include <optional>
#include <string>

#include "core/device_names.h"
#include "traces/events/recording.h"
#include "traces/measured_step.h"

namespace stepcast::cli {

/// True if the path holds a recorded run, ours or others', or its memory, rather than a job.
bool is_recording(const std::string& path);
/// A trace on standard input, "-", as a file that can be read more than once; any other path as it
/// is. The file has no name and is gone when the program ends.
std::string trace_file(const std::string& path);
/// A recording of any format; ranks that it names and that were not given are told on the error
/// stream, because whatever is said of it is said of the others only.
traces::Recording open_recording(const std::string& path);
/// The device that a recording says it is of, as the zoo names it, and the usual machine of it
/// ("": none). Errors: InputError naming `option`, which is needed where the recording does not say.
DeviceName recorded_device(const traces::Recording& recording, const char* option);
/// Tells on the error stream what reading found odd, of one kind or of all.
void tell_oddities(const std::string& path, const traces::ParseWarnings& oddities,
                   std::optional<traces::ParseWarning> only = {});
/// The recorded run as replay, show, compare and explain read it, whatever its format. A mark names
/// the ranges that are steps; our own traces have their own.
traces::MeasuredRun read_run(const std::string& path, const std::string& mark = {});

}  // namespace stepcast::cli
