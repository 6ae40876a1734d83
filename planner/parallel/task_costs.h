#pragma once
#include <cstdint>
#include <map>
#include <tuple>

#include "planner/parallel/closed_form_model.h"

namespace stepcast::planner {

using States = ByRole<StateCosts>;

/// Costs of the points of one search task under one clock. A key holds all that it depends on
/// (LayerCostProbe), so searches that follow one another share it.
struct TaskTable {
  std::map<LayerCostProbe::PassKey, Passes> passes;
  std::map<std::tuple<RecomputeKind, ScheduleKind, std::int64_t, std::int32_t, std::int32_t,
                      std::int32_t, std::int32_t, bool>,
           States>
      states;
  std::map<std::int32_t, StageMessageTimes> message_times;
};

/// Costs of the points of one search task, made when first needed: the points agree in tensor,
/// context, expert, micro and sequence_parallel.
class TaskCosts {
 public:
  TaskCosts(ClosedFormModel& path, TaskTable& table) : path_(path), table_(table) {}
  /// The same, with passes of the other clock made from the same graphs at once.
  TaskCosts(ClosedFormModel& path, TaskTable& table, ClosedFormModel& other, TaskTable& of_other)
      : path_(path), table_(table), other_(&other), of_other_(&of_other) {}
  const Passes& passes(PlanPoint point, RecomputeKind kind);
  /// Those of the split, unless the exchange overlaps with the passes.
  const States& states(const PlanPoint& point, const States& of_split);
  const StageMessageTimes& message_times(const Passes& passes, const PlanPoint& point);

 private:
  ClosedFormModel& path_;
  TaskTable& table_;
  ClosedFormModel* other_ = nullptr;
  TaskTable* of_other_ = nullptr;
};

}  // namespace stepcast::planner
