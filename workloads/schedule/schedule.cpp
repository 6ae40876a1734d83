#include "workloads/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

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

std::vector<ScheduleStep> zero_bubble(const PipelineShape& shape, std::int32_t stage) {
  const std::int32_t m = shape.microbatches;
  const std::int32_t warm_up = std::min(m, shape.stages - 1 - stage);
  std::vector<ScheduleStep> steps;
  std::int32_t weights = 0;
  for (std::int32_t k = 0; k < warm_up; ++k) {
    steps.push_back({Pass::kForward, 0, k});
  }
  for (std::int32_t k = 0; k < m; ++k) {
    if (warm_up + k < m) {
      steps.push_back({Pass::kForward, 0, warm_up + k});
    }
    steps.push_back({Pass::kBackward, 0, k});
    if (k >= stage) {
      steps.push_back({Pass::kWeights, 0, weights++});
    }
  }
  while (weights < m) {
    steps.push_back({Pass::kWeights, 0, weights++});
  }
  return steps;
}

/// The passes of one stage of a V of two chunks, micro-batches in order within a pass and chunk.
class VOrder {
 public:
  explicit VOrder(std::int32_t microbatches) : microbatches_(microbatches) {}
  void forward(std::int32_t chunk) { add(Pass::kForward, chunk, microbatches_); }
  void backward(std::int32_t chunk) { add(Pass::kBackward, chunk, microbatches_); }
  void weights(std::int32_t chunk) { add(Pass::kWeights, chunk, done(Pass::kBackward, chunk)); }
  [[nodiscard]] std::int32_t done(Pass pass, std::int32_t chunk) const {
    return done_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(chunk)];
  }
  std::vector<ScheduleStep> take() && { return std::move(steps_); }

 private:
  void add(Pass pass, std::int32_t chunk, std::int32_t at_most) {
    std::int32_t& count = done_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(chunk)];
    if (count < at_most) {
      steps_.push_back({pass, chunk, count++});
    }
  }
  std::int32_t microbatches_;
  std::array<std::array<std::int32_t, 2>, 3> done_{};
  std::vector<ScheduleStep> steps_;
};

std::vector<ScheduleStep> zero_bubble_v(const PipelineShape& shape, std::int32_t stage) {
  const std::int32_t m = shape.microbatches;
  const std::int32_t behind = shape.stages - stage;
  VOrder order(m);
  const auto times = [](std::int32_t count, const auto& passes) {
    for (std::int32_t i = 0; i < count; ++i) {
      passes();
    }
  };
  const auto whole = [&order](std::int32_t chunk) {
    order.forward(chunk);
    order.backward(chunk);
    order.weights(chunk);
  };
  // Until the first micro-batch is back on the first stage; until its gradient is.
  times(2 * behind - 1, [&] { order.forward(0); });
  times(stage, [&] {
    order.forward(1);
    order.forward(0);
  });
  times(behind, [&] { whole(1); });
  while (order.done(Pass::kForward, 1) < m) {
    whole(0);
    whole(1);
  }
  times(stage, [&] {
    order.backward(0);
    order.backward(1);
  });
  times(behind, [&] {
    order.backward(0);
    order.weights(0);
  });
  for (const std::int32_t chunk : {1, 0}) {
    times(m, [&] { order.backward(chunk); });
    times(m, [&] { order.weights(chunk); });
  }
  return std::move(order).take();
}

}  // namespace

std::vector<ScheduleStep> pipeline_schedule(ScheduleKind kind, const PipelineShape& shape,
                                            std::int32_t stage) {
  STEPCAST_CHECK(stage >= 0 && stage < shape.stages, "stage {} of {}", stage, shape.stages);
  if (kind == ScheduleKind::kZbV) {
    STEPCAST_CHECK(shape.chunks == 2, "zb-v with {} chunks", shape.chunks);
    return zero_bubble_v(shape, stage);
  }
  const std::int64_t rest = shape.microbatches % turn_of(shape);
  if (shape.chunks > 1 && rest > 0 && rest < shape.stages) {
    throw InputError("parallel.virtual_stages",
                     fmt::format("an interleaved pipeline needs micro-batches ({}) in multiples of "
                                 "{}; change batch.global or batch.micro",
                                 shape.microbatches, turn_of(shape)));
  }
  const std::int64_t total = std::int64_t{shape.microbatches} * shape.chunks;
  const std::int64_t behind = shape.stages - 1 - stage;
  std::int64_t warm_up = total;
  if (kind == ScheduleKind::kZbH1) {
    STEPCAST_CHECK(shape.chunks == 1, "zb-h1 with {} chunks", shape.chunks);
    return zero_bubble(shape, stage);
  }
  if (kind == ScheduleKind::kOneFOneB) {
    warm_up =
        shape.chunks == 1 ? behind : 2 * behind + (shape.chunks - 1) * turn_of(shape);
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
