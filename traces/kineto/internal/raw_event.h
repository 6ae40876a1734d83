#pragma once
#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "traces/events/recording.h"

namespace stepcast::traces::internal {

/// The arguments of a collective as Kineto writes them; texts as recorded.
struct RawCollective {
  std::string_view name, dtype, group_name, group_description, group_ranks, communicator;
  std::string_view split_in, split_out;
  std::int64_t elements_in = -1, elements_out = -1, group_size = 0, sequence = -1, peer = -1;
};

/// One element of traceEvents. Views point into the window and are quoted or not as recorded.
struct RawEvent {
  char phase = 0;
  std::string_view category, name, process, thread, begin, duration;
  std::string_view label;  ///< of a thread or process (phase M)
  std::int64_t correlation = 0, external = -1;
  std::optional<std::int64_t> device, stream;
  std::int64_t context = -1;
  // Kernels and copies.
  LaunchInfo launch;
  bool has_launch = false;
  std::int64_t bytes = -1;
  std::int64_t peer_device = -1;
  // Changes of memory.
  std::int64_t address = 0, allocated = 0, reserved = 0, device_type = -1, device_id = 0;
  // Ops.
  std::string_view shapes, types, inputs;
  std::int64_t sequence = -1, record_function = -1, forward_thread = -1;
  bool has_op = false;
  // Waits.
  std::string_view sync_kind;
  std::int64_t wait_stream = -1, record_correlation = -1, event_id = -1;
  bool has_collective = false;
  RawCollective collective;
};

/// Reads one event; `event` is whole when the result is SUCCESS.
simdjson::error_code parse_event(simdjson::ondemand::object& json, RawEvent& event);

}  // namespace stepcast::traces::internal
