#include "workloads/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "workloads/schedule/v_schedule.h"

namespace stepcast::workloads {
namespace {

std::int64_t turn_of(const PipelineShape& shape) {
  return shape.turn > 0 ? shape.turn : shape.stages;
}

/// The k-th forward (or backward) of a stage: groups of as many micro-batches as a turn has visit
/// the chunks one after the other; the last group has what is left.
ScheduleStep nth_step(Pass pass, std::int64_t k, const PipelineShape& shape) {
  const std::int64_t turn = turn_of(shape);
  const std::int64_t first = k / (turn * shape.chunks) * turn;
  const std::int64_t size = std::min(turn, shape.microbatches - first);
  const std::int64_t in_group = k - first * shape.chunks;
  const auto chunk = static_cast<std::int32_t>(in_group / size);
  const auto microbatch = static_cast<std::int32_t>(first + in_group % size);
  return {pass, pass == Pass::kForward ? chunk : shape.chunks - 1 - chunk, microbatch};
}

/// A stage's passes where chunks take turns, or of one chunk.
std::vector<ScheduleStep> in_turn(const ScheduleTraits& schedule, const PipelineShape& shape,
                                  std::int32_t stage) {
  const std::int64_t total = std::int64_t{shape.microbatches} * shape.chunks;
  const std::int64_t behind = shape.stages - 1 - stage;
  const std::int64_t warm_up =
      std::min(total, schedule.ahead == 0 ? total
                      : shape.chunks == 1 ? schedule.ahead * behind
                                          : 2 * behind + (shape.chunks - 1) * turn_of(shape));
  const bool splits = schedule.splits_weights;
  const std::int64_t later = std::min(total, std::int64_t{schedule.ahead} * stage);
  std::vector<ScheduleStep> steps;
  steps.reserve(static_cast<std::size_t>((splits ? 3 : 2) * total));
  // With one chunk, groups only permute nothing: the k-th step is micro-batch k.
  const auto add = [&](Pass pass, std::int64_t k) {
    steps.push_back(shape.chunks == 1 ? ScheduleStep{pass, 0, static_cast<std::int32_t>(k)}
                                      : nth_step(pass, k, shape));
  };
  for (std::int64_t k = 0; k < warm_up; ++k) {
    add(Pass::kForward, k);
  }
  for (std::int64_t k = 0; k < total; ++k) {
    if (warm_up + k < total) {
      add(Pass::kForward, warm_up + k);
    }
    add(Pass::kBackward, k);
    if (splits && k >= later) {
      add(Pass::kWeights, k - later);
    }
  }
  for (std::int64_t k = total - later; splits && k < total; ++k) {
    add(Pass::kWeights, k);
  }
  return steps;
}

}  // namespace

std::vector<ScheduleStep> pipeline_schedule(ScheduleKind kind, const PipelineShape& shape,
                                            std::int32_t stage) {
  STEPCAST_CHECK(stage >= 0 && stage < shape.stages, "stage {} of {}", stage, shape.stages);
  const ScheduleTraits& schedule = traits_of(kind);
  if (schedule.placement == ChunkPlacement::kV && shape.chunks > 1) {
    return std::move(v_schedules(schedule.hops, shape)[static_cast<std::size_t>(stage)]);
  }
  STEPCAST_CHECK(shape.chunks == 1 || !schedule.splits_weights, "{} with {} chunks", schedule.name,
                 shape.chunks);
  const std::int64_t rest = shape.microbatches % turn_of(shape);
  if (shape.chunks > 1 && rest > 0 && rest < shape.stages) {
    throw InputError("parallel.virtual_stages",
                     fmt::format("an interleaved pipeline needs micro-batches ({}) in multiples of "
                                 "{}; change batch.global or batch.micro",
                                 shape.microbatches, turn_of(shape)));
  }
  return in_turn(schedule, shape, stage);
}

std::vector<std::vector<ScheduleStep>> pipeline_schedules(ScheduleKind kind,
                                                          const PipelineShape& shape) {
  const ScheduleTraits& schedule = traits_of(kind);
  if (schedule.placement == ChunkPlacement::kV && shape.chunks > 1) {
    return v_schedules(schedule.hops, shape);
  }
  std::vector<std::vector<ScheduleStep>> all;
  for (std::int32_t stage = 0; stage < shape.stages; ++stage) {
    all.push_back(pipeline_schedule(kind, shape, stage));
  }
  return all;
}

std::int64_t most_in_flight(const std::vector<ScheduleStep>& schedule) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  const bool split = std::any_of(schedule.begin(), schedule.end(),
                                 [](const ScheduleStep& s) { return s.pass == Pass::kWeights; });
  for (const ScheduleStep& s : schedule) {
    now += s.pass == Pass::kForward                               ? 1
           : s.pass == (split ? Pass::kWeights : Pass::kBackward) ? -1
                                                                  : 0;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace stepcast::workloads
