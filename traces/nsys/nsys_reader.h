#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// A rank for each process with device work, from what `nsys export --type sqlite` makes of a
/// report of Nsight Systems: CUDA calls, kernels, copies, fills and waits joined by correlationId,
/// and pushed NVTX ranges. Tables and columns that an export lacks are left out; operators and
/// shapes are in none. Ranks come in the order of the first device that each uses.
///
/// Errors: InputError for a damaged database and one without those tables.
/// Source: Nsight Systems User Guide, "SQLite Export Schema Reference".
std::vector<RankRecording> read_nsys(Input& input, Names& names);

}  // namespace stepcast::traces
