#pragma once
#include <cstdint>
#include <map>
#include <tuple>

#include "planner/parallel/fast_path.h"

namespace stepcast::planner {

using States = ByRole<StateCosts>;

/// Costs of the points of one search task, made when first needed: the points agree in tensor,
/// context, expert, micro and sequence_parallel. What is kept under one key is what ReducedStep
/// says does not depend on the rest of the point.
class TaskCosts {
 public:
  explicit TaskCosts(FastPath& path) : path_(path) {}
  Passes& passes(PlanPoint point, RecomputeKind kind);
  /// Those of the split, unless the exchange overlaps with the passes.
  const States& states(const PlanPoint& point, const States& of_split);
  const Hops& hops(const Passes& passes, const PlanPoint& point);

 private:
  FastPath& path_;
  std::map<ReducedStep::PassKey, Passes> passes_;
  std::map<std::tuple<RecomputeKind, ScheduleKind, std::int64_t, std::int32_t, std::int32_t,
                      std::int32_t, std::int32_t, bool>,
           States>
      states_;
  std::map<std::int32_t, Hops> hops_;
};

}  // namespace stepcast::planner
