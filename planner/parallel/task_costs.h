#pragma once
#include <cstdint>
#include <map>
#include <tuple>

#include "planner/parallel/fast_path.h"

namespace stepcast::planner {

using States = ByRole<StateCosts>;

/// Costs of the points of one search task under one clock. A key holds all that it depends on
/// (ReducedStep), so searches that follow one another share it.
struct TaskTable {
  std::map<ReducedStep::PassKey, Passes> passes;
  std::map<std::tuple<RecomputeKind, ScheduleKind, std::int64_t, std::int32_t, std::int32_t,
                      std::int32_t, std::int32_t, bool>,
           States>
      states;
  std::map<std::int32_t, Hops> hops;
};

/// Costs of the points of one search task, made when first needed: the points agree in tensor,
/// context, expert, micro and sequence_parallel.
class TaskCosts {
 public:
  TaskCosts(FastPath& path, TaskTable& table) : path_(path), table_(table) {}
  /// The same, with passes of the other clock made from the same graphs at once.
  TaskCosts(FastPath& path, TaskTable& table, FastPath& other, TaskTable& of_other)
      : path_(path), table_(table), other_(&other), of_other_(&of_other) {}
  Passes& passes(PlanPoint point, RecomputeKind kind);
  /// Those of the split, unless the exchange overlaps with the passes.
  const States& states(const PlanPoint& point, const States& of_split);
  const Hops& hops(const Passes& passes, const PlanPoint& point);

 private:
  FastPath& path_;
  TaskTable& table_;
  FastPath* other_ = nullptr;
  TaskTable* of_other_ = nullptr;
};

}  // namespace stepcast::planner
