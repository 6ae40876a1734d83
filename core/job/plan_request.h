#pragma once
#include <cstdint>
#include <optional>

#include "core/job/framework_rules.h"
#include "core/job/job.h"

namespace stepcast {

/// Part of a parallel plan that the user fixed; the rest is searched.
struct FixedPlan {
  std::optional<std::int64_t> tensor, context, expert, pipeline, data, virtual_stages, micro;
  std::optional<bool> sequence_parallel;
  std::optional<int> zero;
  std::optional<ScheduleKind> schedule;
  std::optional<Recompute> recompute;
  std::optional<PipelineSplit> pipeline_split;
  std::optional<MeshOrder> order;
  std::optional<TrainingFramework> framework;  ///< that must be able to run the plan
  /// Another search has the plans that no order of ranks changes: those of one stage, or one
  /// replica.
  bool reordered = false;
};

/// A job whose parallel plan is to be chosen. `job.parallel` holds what is not searched (overlaps,
/// bucket); its degrees are those of no split.
struct PlanRequest {
  Job job;
  FixedPlan fixed;
};

}  // namespace stepcast
