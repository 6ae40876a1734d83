#pragma once
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "traces/events/kernel_kinds.h"
#include "traces/events/operator_traffic.h"
#include "traces/events/operators.h"
#include "traces/events/recording.h"

namespace stepcast::traces {

/// Joins device work to the operator of the framework that launched it, and so to its shape: the
/// launching call by correlation, the operator as the innermost around that call on its thread, or
/// one outside it that is made of others (operators.h). Copies and fills give their own bytes.
class OperatorJoin {
 public:
  OperatorJoin(const Recording& recording, const RankRecording& rank);

  struct Joined {
    EventId call = kNoEvent;             ///< the operator's call; copies and fills: the work itself
    const OperatorWork* work = nullptr;  ///< null: not one of ours, or without shapes
  };
  [[nodiscard]] Joined of(EventId device_work) const;
  /// The innermost operator around the launch of device work; kNoEvent where none was recorded.
  [[nodiscard]] EventId innermost(EventId device_work) const;
  /// Bytes and FLOPs of the innermost operator, where it is none of ours.
  [[nodiscard]] const std::optional<OperatorTraffic>& traffic_of(EventId device_work) const;
  /// Kind of device work, by its name and the operators around its launch.
  [[nodiscard]] KernelKinds::Kind kind_of(EventId device_work) const;

 private:
  [[nodiscard]] const std::optional<OperatorWork>& work(EventId call) const;
  [[nodiscard]] OperatorCall call_of(EventId op) const;
  /// Calls of one operator with the same inputs, or copies of one kind and size: a trace of
  /// millions has thousands.
  using Key = std::array<std::int64_t, 4>;
  [[nodiscard]] Key key_of(EventId event) const;

  const Recording& recording_;
  const RankRecording& rank_;
  std::vector<EventId> around_;  ///< by host event: the innermost operator around it
  mutable std::map<Key, std::optional<OperatorWork>> known_;
  mutable std::map<std::pair<Key, KernelKind>, std::optional<OperatorTraffic>> traffic_;
  mutable std::map<std::pair<NameId, NameId>, KernelKinds::Kind> kinds_;  ///< by kernel, operator
};

}  // namespace stepcast::traces
