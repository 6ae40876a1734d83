#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "profiler/capture/capture_settings.h"
#include "traces/events/recording.h"

namespace stepcast::profiler {

/// Interface of libstepcast_cupti.so for a program that loads it to record itself, as `stepcast run
/// --backend cuda --trace` does. (Other programs are recorded by injection, see
/// docs/how-to/profile-cuda.md.) One capture per process; not thread-safe but for push_op and
/// pop_op.
///
///   auto* entry = LoadedModule(file).function<CuptiModuleEntry>(kCuptiModuleEntry);
///   CuptiModule& cupti = *entry();
///   if (std::string why = cupti.start({}); !why.empty()) ...   // before the first CUDA call
///   cupti.begin_step(0); cupti.push_op(ref, false); launch(...); cupti.pop_op(); ...
///   cupti.end_step(); traces::Recording recording = cupti.stop({rank, ranks}).value();
class CuptiModule {
 public:
  virtual ~CuptiModule() = default;
  /// Starts collecting at once. Returns why not; empty: it does. `out` and `steps` are not used.
  virtual std::string start(const CaptureSettings& settings) = 0;
  virtual void begin_step(std::int64_t number) = 0;
  virtual void end_step() = 0;
  /// Work that this thread launches until pop_op belongs to this op: events bear it as `external`.
  /// `elsewhere`: so does what other threads launch meanwhile, as NCCL's do for communicators that
  /// do not block. One thread names ops.
  virtual void push_op(std::uint64_t op, bool elsewhere) = 0;
  virtual void pop_op() = 0;
  /// Waits until all that was launched is read, at most some seconds; the device should be
  /// synchronised. nullopt where nothing was recorded. Times are those of
  /// std::chrono::steady_clock.
  virtual std::optional<traces::Recording> stop(LaunchedRank rank) = 0;
};

/// The module's symbol: `extern "C" CuptiModule* stepcast_cupti_module()`.
using CuptiModuleEntry = CuptiModule*();
constexpr const char* kCuptiModuleEntry = "stepcast_cupti_module";

}  // namespace stepcast::profiler
