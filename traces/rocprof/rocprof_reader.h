#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// A rank for each process with records, from what `rocprofv3 --output-format json` writes: HIP
/// calls, kernel dispatches and copies joined by the internal correlation id, and roctx ranges.
/// Device work lies on its stream, of versions that name none on its queue.
///
/// Errors: InputError naming file and byte for what is no such JSON.
/// Source: ROCprofiler-SDK, "Using rocprofv3", output fields of JSON.
std::vector<RankRecording> read_rocprof(Input& input, Names& names);

}  // namespace stepcast::traces
