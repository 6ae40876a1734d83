#include "workloads/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

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

/// All stages of a V in slots of equal length, one pass a slot.
class VSchedule {
 public:
  explicit VSchedule(const PipelineShape& shape)
      : stages_{shape.stages, shape.chunks, ChunkPlacement::kV},
        microbatches_(shape.microbatches),
        orders_(static_cast<std::size_t>(shape.stages)),
        done_(static_cast<std::size_t>(stages_.count())) {}

  std::vector<std::vector<ScheduleStep>> orders() && {
    const auto all = static_cast<std::size_t>(3 * stages_.chunks * microbatches_);
    for (bool open = true; open;) {
      std::vector<std::optional<ScheduleStep>> slot;  // chosen of what was done before it
      open = false;
      for (std::int64_t stage = 0; stage < stages_.stages; ++stage) {
        slot.push_back(next(stage));
      }
      for (std::size_t stage = 0; stage < slot.size(); ++stage) {
        if (slot[stage]) {
          const ScheduleStep& s = *slot[stage];
          ++done_[at(static_cast<std::int64_t>(stage), s.chunk)][static_cast<std::size_t>(s.pass)];
          orders_[stage].push_back(s);
        }
        open = open || orders_[stage].size() < all;
      }
    }
    return std::move(orders_);
  }

 private:
  [[nodiscard]] std::size_t at(std::int64_t stage, std::int64_t chunk) const {
    return static_cast<std::size_t>(stages_.at(stage, chunk));
  }
  [[nodiscard]] std::int32_t done(std::size_t virtual_stage, Pass pass) const {
    return done_[virtual_stage][static_cast<std::size_t>(pass)];
  }
  [[nodiscard]] bool ready(std::size_t v, Pass pass) const {
    const std::int32_t k = done(v, pass);
    if (k == microbatches_) {
      return false;
    }
    switch (pass) {
      case Pass::kForward:
        return v == 0 || done(v - 1, Pass::kForward) > k;
      case Pass::kBackward:
        return done(v, Pass::kForward) > k &&
               (v + 1 == done_.size() || done(v + 1, Pass::kBackward) > k);
      case Pass::kWeights:
        break;
    }
    return done(v, Pass::kBackward) > k;
  }
  /// A forward leaves room for those that its micro-batch, and all before it, still need here.
  [[nodiscard]] bool has_room(std::int64_t stage, std::int64_t chunk) const {
    std::int64_t in_flight = 0;
    const std::int64_t begun = done(at(stage, chunk), Pass::kForward) + 1;
    for (std::int64_t c = 0; c < stages_.chunks; ++c) {
      const std::int64_t forwards = done(at(stage, c), Pass::kForward);
      in_flight += (c < chunk ? forwards : begun) - done(at(stage, c), Pass::kWeights);
    }
    return in_flight <= stages_.count();
  }
  [[nodiscard]] std::optional<ScheduleStep> next(std::int64_t stage) const {
    for (const Pass pass : {Pass::kBackward, Pass::kForward, Pass::kWeights}) {
      for (std::int64_t chunk = stages_.chunks; chunk-- > 0;) {
        const std::size_t v = at(stage, chunk);
        if (ready(v, pass) && (pass != Pass::kForward || has_room(stage, chunk))) {
          return ScheduleStep{pass, static_cast<std::int32_t>(chunk), done(v, pass)};
        }
      }
    }
    return std::nullopt;
  }

  VirtualStages stages_;
  std::int32_t microbatches_;
  std::vector<std::vector<ScheduleStep>> orders_;  ///< by stage
  std::vector<std::array<std::int32_t, 3>> done_;  ///< passes of each kind, by virtual stage
};

}  // namespace

std::vector<ScheduleStep> pipeline_schedule(ScheduleKind kind, const PipelineShape& shape,
                                            std::int32_t stage) {
  STEPCAST_CHECK(stage >= 0 && stage < shape.stages, "stage {} of {}", stage, shape.stages);
  if (traits_of(kind).placement == ChunkPlacement::kV) {
    return VSchedule(shape).orders()[static_cast<std::size_t>(stage)];
  }
  if (shape.chunks > 1 && shape.microbatches % shape.stages != 0) {
    throw InputError("parallel.virtual_stages",
                     fmt::format("an interleaved pipeline needs micro-batches ({}) in multiples of "
                                 "the pipeline ({}); change batch.global or batch.micro",
                                 shape.microbatches, shape.stages));
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
