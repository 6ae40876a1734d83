#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// One rank from what `nsys export --type sqlite` makes of a report of Nsight Systems: CUDA calls,
/// kernels, copies, fills and waits joined by correlationId, and pushed NVTX ranges. Tables and
/// columns that an export lacks are left out; operators and shapes are in none.
///
/// Errors: InputError for a damaged database, one without those tables, and one of several
/// processes with device work (each rank needs a report of its own).
/// Source: Nsight Systems User Guide, "SQLite Export Schema Reference".
RankRecording read_nsys(Input& input, Names& names);

}  // namespace stepcast::traces
