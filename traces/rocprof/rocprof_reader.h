#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// One rank from what `rocprofv3 --output-format json` writes: HIP calls, kernel dispatches and
/// copies joined by the internal correlation id, and roctx ranges. Device work lies on its stream,
/// of versions that name none on its queue.
///
/// Errors: InputError naming the file for what is no such JSON, and for one of several processes.
/// Source: ROCprofiler-SDK, "Using rocprofv3", output fields of JSON.
RankRecording read_rocprof(Input& input, Names& names);

}  // namespace stepcast::traces
