#pragma once
#include <string>

#include "traces/events/recording.h"
#include "traces/trace.h"

namespace stepcast::traces {

/// The recording of a trace of our own runtime: each op of its graph an event of its stream, with
/// the moment it was issued as a launch of no duration on the host lane; event edges as stream
/// waits; host intervals as ranges. `external` is call * 2^32 + op, the OpRef of the graph that
/// ran.
Recording recording_of(const Trace& trace, const std::string& source);

}  // namespace stepcast::traces
