#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::runtime {

/// One op of the step in issue order.
struct Issue {
  const Op* op = nullptr;
  OpRef ref;
  std::int32_t microbatch = 0;
  std::uint32_t first_target = 0;  ///< into IssueOrder::wait_targets, one per wait of the op
  std::uint32_t generation = 0;    ///< of the event it records: the how manieth record of the step
};

/// All ops of one step of a program as the host thread issues them, calls unrolled. A wait refers
/// to the latest record issued before it: `wait_targets` holds that record's generation, 0 when the
/// step has none yet (the one of the step before is long done).
struct IssueOrder {
  std::vector<Issue> issues;
  std::vector<std::uint32_t> wait_targets;
  bool pipelined = false;  ///< some ops work on the batch of the next step
};
IssueOrder issue_order(const Program& program);

}  // namespace stepcast::runtime
