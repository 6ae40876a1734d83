#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/graph/execution_order.h"
#include "simulator/step_costs.h"

namespace stepcast::simulator {

constexpr std::int64_t kUnknownTime = -1;  ///< has not happened yet

/// A stream of a simulated rank and the op it is at.
struct StreamState {
  enum class Doing : std::uint8_t {
    kReady,
    kUnissued,  ///< its next op is not issued yet
    kOnRecord,
    kInCollective,
    kOnCore,  ///< waits for the core
    kRunning,
    kDone
  };

  std::int64_t free = 0;   // end of the previous op
  std::uint64_t next = 0;  // executed ops; number of the current one
  std::uint64_t issued = 0;
  std::uint64_t total = 0;
  std::uint32_t call = 0;
  std::uint32_t at = 0, at_end = 0;  // current row of ExecutionOrder::entries
  // Ring over the last `capacity` ops: issue time until the op ends, then its end.
  std::int64_t* ring = nullptr;
  std::uint32_t capacity = 0, end_slot = 0, issue_slot = 0;
  Doing doing = Doing::kReady;
  std::uint32_t record = 0;  // kOnRecord: the record waited for
  // The current op.
  std::int64_t issued_at = 0, begin = 0, ready = 0, work = 0;
  double remaining = 0;  // kRunning: ticks left at `mark`
  std::int64_t mark = 0, end = 0;
  bool slowed = false;
};

/// One simulated rank: its streams, and what its program has recorded so far.
struct RankState {
  const ExecutionOrder* order = nullptr;
  const OpCosts* costs = nullptr;
  std::int32_t rank = 0;
  bool ahead = true;           // compute runs ahead of the event clock
  bool unbounded = true;       // no queue can fill: issue times follow from the op's number
  std::uint64_t runnable = 0;  // streams to advance
  bool listed = false;         // in the work list
  bool host_ready = true;      // the host thread can go on
  std::vector<StreamState> streams;
  std::vector<std::int64_t> ring_storage;
  std::vector<std::int64_t> record_time;
  std::vector<std::int64_t> prefix;  // sums of dispatch + ticks over ExecutionOrder::entries
  /// By op template: a collective of equal partners whose links no other transfer of the rank can
  /// share. It ends when it ends: no event.
  std::vector<char> alone;
  std::int64_t compute = 0, wait = 0, transfer = 0;

  /// The first record among those an op waits for that is not made yet; -1: all are, and `time` is
  /// at least the last of them.
  [[nodiscard]] std::int64_t unknown_record(std::uint32_t call, std::uint32_t op,
                                            std::int64_t& time) const {
    for (const ExecutionOrder::Wait awaited : order->waits(op)) {
      const std::int32_t record = order->awaited(call, awaited);
      if (record < 0) {
        continue;  // the step before has ended
      }
      const std::int64_t recorded = record_time[static_cast<std::size_t>(record)];
      if (recorded == kUnknownTime) {
        return record;
      }
      time = std::max(time, recorded);
    }
    return -1;
  }
};

}  // namespace stepcast::simulator
