#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "traces/events/host_calls.h"
#include "traces/events/recording.h"
#include "traces/graph/operator_join.h"
#include "traces/graph/phases.h"

namespace stepcast::traces {

/// A call that matters for the order of device work.
struct HostAction {
  EventId event = kNoEvent;
  HostCall what = HostCall::kOther;
  std::uint32_t first_launched = 0, launched = 0;  ///< of HostOrder::launched_by
};

/// The calls of a rank that launch, copy, wait or order streams, of all host threads, by begin: in
/// training one thread issues while the others wait for it, so one order of all threads is the
/// order of issue. What each launched, and how launching went.
class HostOrder {
 public:
  HostOrder(const Recording& recording, const RankRecording& rank);

  [[nodiscard]] const std::vector<HostAction>& actions() const { return actions_; }
  /// Device work a call launched, by begin.
  [[nodiscard]] std::span<const EventId> launched_by(const HostAction& call) const {
    return std::span(launched_).subspan(call.first_launched, call.launched);
  }
  /// Device work of a stream lane, by begin.
  [[nodiscard]] const std::vector<EventId>& work_of(std::size_t lane) const { return work_[lane]; }
  /// Median time from the begin of a launching call to that of its work on an idle stream.
  [[nodiscard]] Nanoseconds launch_latency() const { return launch_latency_; }
  /// Median time in a call that launches.
  [[nodiscard]] Nanoseconds launch_call() const { return launch_call_; }
  /// Mean gap between pieces of work that were both waiting in their stream, of the usual ones: up
  /// to twice the median.
  [[nodiscard]] Nanoseconds dispatch_gap() const { return dispatch_gap_; }
  /// The longest that is usual.
  [[nodiscard]] Nanoseconds usual_gap() const { return usual_gap_; }
  /// The sync record of a call: stream waits, event records; null where the profiler wrote none.
  [[nodiscard]] const SyncInfo* sync_of(EventId call) const;
  /// Which operator of the framework launched what.
  [[nodiscard]] const OperatorJoin& operators() const { return operators_; }
  /// Which part of the step launched what.
  [[nodiscard]] const Phases& phases() const { return phases_; }
  /// Host time that a call spent waiting for room in a full queue, where the profiler says so.
  [[nodiscard]] Nanoseconds queue_full_in(EventId call) const;

 private:
  void measure_latencies(const Events& events);

  const RankRecording& rank_;
  OperatorJoin operators_;
  Phases phases_;
  std::vector<HostAction> actions_;
  std::vector<EventId> launched_;                                 ///< by call
  std::vector<std::vector<EventId>> work_;                        ///< by lane
  std::vector<std::pair<std::int64_t, std::int32_t>> syncs_;      ///< correlation, index; sorted
  std::vector<std::pair<std::int64_t, Nanoseconds>> queue_full_;  ///< correlation, time; sorted
  Nanoseconds launch_latency_{}, launch_call_{}, dispatch_gap_{}, usual_gap_{};
};

}  // namespace stepcast::traces
