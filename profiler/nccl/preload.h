#pragma once
#include <cstdint>

#include "profiler/nccl/nccl_call.h"

namespace stepcast::profiler {

/// Inside libstepcast_preload.so: the listener, null for none, and the launch that this thread is
/// in, 0 for none.
const NcclSink* current_sink();
std::uint64_t current_launch();

}  // namespace stepcast::profiler
