#include "profiler/capture/device_recorder.h"

#include <fmt/format.h>

#include "core/error.h"

namespace stepcast::profiler {

DeviceRecorder::DeviceRecorder(std::int32_t rank, std::int32_t ranks, const Program& program,
                               std::int32_t steps, CuptiModule& cupti)
    : program_(program), rank_{rank, ranks}, host_(rank, program, steps), cupti_(cupti) {}

DeviceRecorder::~DeviceRecorder() {
  if (!stopped_) {
    cupti_.stop(rank_);
  }
}

void DeviceRecorder::on_step_begin(std::int32_t rank, std::int32_t step, SimTime at) {
  host_.on_step_begin(rank, step, at);
  cupti_.begin_step(step);
}

void DeviceRecorder::on_step_end(std::int32_t rank, std::int32_t step, SimTime at) {
  cupti_.end_step();
  host_.on_step_end(rank, step, at);
}

traces::RankTrace DeviceRecorder::finish(std::int64_t epoch_ns, DeviceTimes* found) {
  traces::RankTrace trace = host_.finish();
  stopped_ = true;
  const std::optional<traces::Recording> recording = cupti_.stop(rank_);
  DeviceTimes times;
  if (recording) {
    times = take_device_times(trace, program_, *recording, traces::Nanoseconds(epoch_ns));
  }
  if (times.ops == 0 && !trace.ops.empty()) {
    throw RunError(fmt::format(
        "CUPTI recorded no device work of rank {} ({} pieces that belong to no op, {} records "
        "dropped): nothing says when its ops ran, and no trace is written; run again with "
        "--op-clock events",
        rank_.rank, times.unnamed, times.dropped));
  }
  if (found != nullptr) {
    *found = times;
  }
  return trace;
}

}  // namespace stepcast::profiler
