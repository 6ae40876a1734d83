#include "workloads/schedule.h"

#include <algorithm>

#include "core/error.h"

namespace stepcast::workloads {
namespace {

/// The k-th forward (or backward) of a stage: groups of p micro-batches visit the chunks one after
/// the other.
ScheduleStep nth_step(Pass pass, std::int64_t k, const PipelineShape& shape) {
  const std::int64_t group = std::int64_t{shape.stages} * shape.chunks;
  const std::int64_t in_group = k % group;
  const auto chunk = static_cast<std::int32_t>(in_group / shape.stages);
  const auto microbatch =
      static_cast<std::int32_t>(k / group * shape.stages + in_group % shape.stages);
  return {pass, pass == Pass::kForward ? chunk : shape.chunks - 1 - chunk, microbatch};
}

}  // namespace

std::vector<ScheduleStep> pipeline_schedule(ScheduleKind kind, const PipelineShape& shape,
                                            std::int32_t stage) {
  STEPCAST_CHECK(stage >= 0 && stage < shape.stages, "stage {} of {}", stage, shape.stages);
  if (shape.chunks > 1 && shape.microbatches % shape.stages != 0) {
    throw InputError("parallel.virtual_stages",
                     fmt::format("an interleaved pipeline needs micro-batches ({}) in multiples of "
                                 "the pipeline ({}); change batch.global or batch.micro",
                                 shape.microbatches, shape.stages));
  }
  const std::int64_t total = std::int64_t{shape.microbatches} * shape.chunks;
  const std::int64_t behind = shape.stages - 1 - stage;
  std::int64_t warm_up = total;
  if (kind == ScheduleKind::kOneFOneB) {
    warm_up =
        shape.chunks == 1 ? behind : 2 * behind + std::int64_t{shape.chunks - 1} * shape.stages;
    warm_up = std::min(warm_up, total);
  }
  // With one chunk, groups only permute nothing: the k-th step is micro-batch k.
  const auto step = [&shape](Pass pass, std::int64_t k) {
    return shape.chunks == 1 ? ScheduleStep{pass, 0, static_cast<std::int32_t>(k)}
                             : nth_step(pass, k, shape);
  };
  std::vector<ScheduleStep> steps;
  steps.reserve(static_cast<std::size_t>(2 * total));
  for (std::int64_t k = 0; k < warm_up; ++k) {
    steps.push_back(step(Pass::kForward, k));
  }
  for (std::int64_t k = warm_up; k < total; ++k) {
    steps.push_back(step(Pass::kForward, k));
    steps.push_back(step(Pass::kBackward, k - warm_up));
  }
  for (std::int64_t k = total - warm_up; k < total; ++k) {
    steps.push_back(step(Pass::kBackward, k));
  }
  return steps;
}

std::int64_t most_in_flight(const std::vector<ScheduleStep>& schedule) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const ScheduleStep& s : schedule) {
    now += s.pass == Pass::kForward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace stepcast::workloads
