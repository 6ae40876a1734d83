#pragma once
#include <filesystem>

#include "traces/events/edit.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// Writes Chakra execution traces (protobuf, metadata version 0.0.4). One rank gives a file,
/// several a folder of rank.R.et.
///
/// Execution graphs keep their nodes and edges. From a timeline, nodes are made so that a simulator
/// may run them: device work depends on the call that launched it, on the work before it on its
/// stream and on what its stream was made to wait for; host events follow one another per thread,
/// each with its own time without that of the events inside; a call that waits for the device takes
/// no time of its own but depends on the work it waited for. Attributes of ours (category,
/// begin_ns, duration_ns, correlation, ...) carry what the schema has no field for, so read_chakra
/// gives the recording back; other readers pass over them. Whole microseconds elsewhere: the
/// schema's resolution.
///
/// What the reference feeder demands is checked before anything is written: ids are unique, edges
/// name nodes that exist, no cycle. Errors: InputError naming the node.
Losses write_chakra(const std::filesystem::path& out, const Recording& recording);

}  // namespace stepcast::traces
