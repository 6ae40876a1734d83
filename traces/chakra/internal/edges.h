#pragma once
#include "traces/events/recording.h"

namespace stepcast::traces::internal {

/// The dependencies that a timeline implies (write_chakra says which), as edges between events,
/// with those that an execution graph added;
/// `host_waits`: also those of calls that wait for the device.
Dependencies edges_of_timeline(const RankRecording& rank, const Names& names, bool host_waits);
/// The time of each host event without that of the events inside it; of others their duration.
/// Calls that wait for the device have none.
std::vector<Nanoseconds> own_times(const RankRecording& rank, const Names& names);
/// An event that waits for itself through data dependencies, the ones by which the reference feeder
/// releases nodes; kNoEvent when there is none.
EventId find_cycle(const Dependencies& edges, std::size_t events);

}  // namespace stepcast::traces::internal
