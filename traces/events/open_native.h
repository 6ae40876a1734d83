#pragma once
#include <string>

#include "traces/events/recording.h"

namespace stepcast::traces {

/// A trace of our own runtime as a recording: with its ranks and groups, without events.
Recording recording_of(GraphRun trace, const std::string& source);

/// A recording of our own runtime as one of events: each op of its graph an event of its stream,
/// with the moment it was issued as a launch of no duration on the host lane; event edges as stream
/// waits; host intervals as ranges. `external` is call * 2^32 + op, the OpRef of the graph that
/// ran, which is left out. Any other recording as it is.
Recording events_of(Recording recording);

}  // namespace stepcast::traces
