#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "traces/events/recording.h"
#include "traces/native/internal/json_node.h"
#include "traces/native/native_trace.h"

namespace stepcast::traces::internal {

/// The events of a recording as our own format holds them: names, lanes and tables in the manifest,
/// the events of each rank in a file of its own.
nlohmann::json event_tables(const Recording& recording);
std::string events_csv(const RankRecording& rank);
/// Errors: as read_recording.
Recording read_events(const JsonNode& tables, const OpenPart& open);

}  // namespace stepcast::traces::internal
