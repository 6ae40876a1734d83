#pragma once
#include "core/input/input.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// A profile of JAX or TensorFlow (`*.xplane.pb`): one process of a GPU program.
///
/// Planes "/device:GPU:N" hold the streams of device N, planes "/host:..." the threads: calls of
/// the driver, which a correlation id joins to the work they launched, ranges of the program,
/// frames of Python. Ranges with a `step_num` (jax.profiler.StepTraceAnnotation) are steps. Not
/// read: derived lines, counters, HLO protos, TPU planes (nothing there says which call launched
/// what).
///
/// Errors: InputError where the protobuf is damaged, or no GPU was profiled.
/// Source: openxla/xla, tsl/profiler/protobuf/xplane.proto; xla/backends/profiler/gpu/
/// cupti_collector.cc, cupti_buffer_events.h; xla/tsl/profiler/utils/xplane_schema.cc.
RankRecording read_xplane(Input& input, Names& names);

}  // namespace stepcast::traces
