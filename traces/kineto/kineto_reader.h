#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// One rank from the Chrome trace JSON that Kineto and its relatives write: {"traceEvents": [...]}
/// or the bare list; every dialect since 2021 (categories "Kernel" and "kernel", times whole or
/// fractional, absolute or relative to baseTimeNanoseconds, process and thread ids that are texts).
///
/// Kept are complete events (ph X, or B and E) with what the model holds of their arguments; of the
/// rest the number by kind (RankRecording::records). The profiler's own spans (category Trace) are
/// left out, events whose times cannot be are left out and counted. rank is -1 where the file does
/// not say.
/// Errors: InputError naming file and byte for anything that is no such JSON, cut, or of which a
/// tenth is more than 30 days from the rest (files that were joined). Source: the files themselves;
/// reference/profiling-and-traces.md 5.1.
RankRecording read_kineto(Input& input, Names& names);

}  // namespace stepcast::traces
