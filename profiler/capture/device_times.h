#pragma once
#include <cstdint>

#include "traces/events/recording.h"
#include "traces/trace.h"

namespace stepcast::profiler {

/// The external id under which an op's device work is recorded (CuptiModule::push_op), as native
/// traces write it: call * 2^32 + op.
std::uint64_t op_id(OpRef ref);

/// Findings of take_device_times.
struct DeviceTimes {
  std::uint64_t ops = 0;      ///< whose times are now the device's
  std::uint64_t without = 0;  ///< ops that launched nothing, or whose work was not recorded
  std::uint64_t unnamed = 0;  ///< pieces of device work of the steps that belong to no op
  std::uint64_t dropped = 0;  ///< records the recording says it lost; added to the rank's
};

/// Gives the ops of a rank of our own run the times that a recording of its process measured: an op
/// begins with the first and ends with the last piece of device work it launched, and was issued by
/// the first of its calls. The step of a launch is the last that began before it. An op without
/// device work takes no time: it ends with the op before it on its stream, or when it was issued.
///
/// `program`: the rank's own; spans of a stream must stand in its order, as HostRecorder leaves
/// them. `epoch`: time 0 of the trace on the recording's clock (std::chrono::steady_clock), in ns.
DeviceTimes take_device_times(traces::RankTrace& rank, const Program& program,
                              const traces::Recording& recording, traces::Nanoseconds epoch);

}  // namespace stepcast::profiler
