#pragma once
#include <cstdint>

#include "core/graph/observer.h"
#include "profiler/capture/device_times.h"
#include "profiler/cupti/module.h"
#include "profiler/host/host_recorder.h"

namespace stepcast::profiler {

/// Records what the runtime of one rank reports while CUPTI records what the device does: op times
/// are the device's own, and nothing is put between the ops to get them.
///
///   if (std::string why = cupti.start({}); !why.empty()) ...  // before the first CUDA call
///   DeviceRecorder recorder(rank, ranks, program, steps, cupti);
///   auto result = run_training(..., &recorder);
///   traces::write_rank(folder, recorder.finish(result.epoch_ns));
class DeviceRecorder final : public Observer {
 public:
  /// `cupti` has been started.
  DeviceRecorder(std::int32_t rank, std::int32_t ranks, const Program& program, std::int32_t steps,
                 CuptiModule& cupti);
  /// Ends the recording if finish() did not.
  ~DeviceRecorder() override;

  void on_step_begin(std::int32_t rank, std::int32_t step, SimTime at) override;
  void on_op(const OpSpan& span) override { host_.on_op(span); }
  void on_host(const HostSpan& span) override { host_.on_host(span); }
  void on_step_end(std::int32_t rank, std::int32_t step, SimTime at) override;
  void on_launch_begin(OpRef ref) override {
    cupti_.push_op(op_id(ref), program_.ops[ref.op].communicator >= 0);
  }
  void on_launch_end() override { cupti_.pop_op(); }
  [[nodiscard]] bool measures_ops() const override { return true; }

  /// Ends the recording and joins both; the run must be over, the device idle. `epoch_ns`: steady
  /// clock at time 0 of the run. `found`: what the join found.
  /// Errors: RunError when CUPTI recorded no work of any op: then nothing says when ops ran.
  [[nodiscard]] traces::RankTrace finish(std::int64_t epoch_ns, DeviceTimes* found = nullptr);

 private:
  const Program& program_;
  LaunchedRank rank_;
  HostRecorder host_;
  CuptiModule& cupti_;
  bool stopped_ = false;
};

}  // namespace stepcast::profiler
