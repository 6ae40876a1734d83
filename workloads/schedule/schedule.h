#pragma once
#include <cstdint>
#include <vector>

#include "core/job/job.h"

namespace stepcast::workloads {

/// kWeights: the weight gradients, where a schedule splits them from the backward pass.
enum class Pass : std::uint8_t { kForward, kBackward, kWeights };

/// One unit of work of a pipeline stage: a pass of one micro-batch through one of its chunks.
struct ScheduleStep {
  Pass pass = Pass::kForward;
  std::int32_t chunk = 0;
  std::int32_t microbatch = 0;
  auto operator<=>(const ScheduleStep&) const = default;
};

/// How micro-batches go through a pipeline. Virtual stages are those of VirtualStages::at.
struct PipelineShape {
  std::int32_t stages = 1;
  std::int32_t chunks = 1;  ///< virtual stages per stage; > 1 is interleaved
  std::int32_t microbatches = 1;
  /// Micro-batches that a chunk runs before the next chunk's turn; 0: as many as stages.
  std::int32_t turn = 0;
};

/// The order in which stage `stage` works: the one place that expands micro-batches.
///
/// A stage runs `w` warm-up forwards, then forward and backward in turn, then the remaining
/// backwards:
///   GPipe         w = all;
///   1F1B          w = min(m, p - 1 - i);
///   interleaved   w = min(m v, 2 (p - 1 - i) + (v - 1) g), forwards in turns of g micro-batches per
///                 chunk, backwards alike from the last chunk on. g is p where nothing is said; the
///                 last turn has m mod g micro-batches, none or at least p (Megatron-LM,
///                 --microbatch-group-size-per-virtual-pipeline-stage).
///   ZB-H1         1F1B with weight gradients apart: those of micro-batch k follow backward k + i,
///                 so every stage has min(m, p) micro-batches in flight and the bubble is
///                 (p - 1) (F + B - W) for W <= B and m >= p, where 1F1B's is
///                 (p - 1) (F + B + W). Qi et al., arXiv 2401.10241, section 3.
///   ZB-H2         the same with w = 2 (p - 1 - i) and weight gradients after backward k + 2 i:
///                 2 p - 1 in flight and a bubble of (p - 1) (F + B - 2 W). Ibid.
///   V             two chunks in a V (chunk 1 runs back from the last stage), weight gradients
///                 apart: workloads/schedule/v_schedule.h. ZB-V has at most p micro-batches in
///                 flight and, with passes of equal time and m >= p, takes 6 m + p - 1 of them,
///                 where 1F1B takes 6 (m + p - 1); V-Half has p / 2 + 1 and takes 6 m + 3 p at
///                 most, V-Min p / 3 + 4 / 3 and 6 m + 4 p at most. DualPipeV has p + 1 / 2:
///                 every forward is followed by the backward of another micro-batch, whose
///                 exchanges run beside it (arXiv 2412.19437, section 3.2.1); where its authors
///                 leave backwards of the last micro-batches whole, these are split too.
/// Forwards of a chunk go in the order of micro-batches, and backwards too, so messages match
/// first-in first-out. Errors: InputError for an interleaved pipeline with 0 < m mod g < p. Source:
/// Narayanan et al., arXiv 2104.04473, section 2.2; Huang et al., arXiv 1811.06965.
std::vector<ScheduleStep> pipeline_schedule(ScheduleKind kind, const PipelineShape& shape,
                                            std::int32_t stage);

/// Orders of all stages at once: in a V they take no longer than that of one.
std::vector<std::vector<ScheduleStep>> pipeline_schedules(ScheduleKind kind,
                                                          const PipelineShape& shape);

/// Most (chunk, micro-batch) pairs of a stage that are past their forward and not past their
/// backward (and weight gradients, where apart) at one time.
std::int64_t most_in_flight(const std::vector<ScheduleStep>& schedule);

}  // namespace stepcast::workloads
