#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "traces/events/rank_builder.h"

namespace stepcast::traces {

/// Records of profilers of devices in whatever format (Nsight Systems, rocprofv3, XLA): calls of
/// the runtime, ranges of the program, kernels and copies, joined by correlation, as events of a
/// rank.
///
/// Times are nanoseconds of one clock. A record that ends before it begins, or lasts more than 30
/// days, is counted and left out.
class ProfilerRecords {
 public:
  ProfilerRecords(Names& names, const std::string& source);

  struct Span {
    std::int64_t begin = 0, end = 0;
    std::string_view name;
    std::int64_t correlation = 0;  ///< of the call that launched it; 0: none
  };
  struct Thread {
    std::int64_t process = 0, thread = 0;
  };
  struct Stream {
    std::int64_t device = 0, context = -1, stream = 0;
  };
  void call(const Span& span, const Thread& thread);
  void range(const Span& span, const Thread& thread);
  void python(const Span& span, const Thread& thread);
  /// A range that the program itself numbered as its step.
  void step(const Span& span, const Thread& thread, std::int64_t number);
  void kernel(const Span& span, const Stream& stream, const LaunchInfo& launch);
  void copy(const Span& span, const Stream& stream, EventCategory category, std::int64_t bytes);
  /// By the host for a stream, or with `stream` -1 for everything.
  void synchronisation(const Span& span, const Stream& stream);

  [[nodiscard]] RankRecording& rank() { return builder_.rank(); }
  /// Adds `base` to all times. Errors: InputError where nothing was recorded.
  RankRecording finish(std::int64_t base) &&;

 private:
  void add(const Span& span, EventCategory category, std::uint16_t lane, std::int32_t detail);
  std::uint16_t lane_of(const Stream& stream);
  RankBuilder builder_;
};

}  // namespace stepcast::traces
