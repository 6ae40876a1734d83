#pragma once
#include <compare>
#include <cstdint>
#include <string>

#include "core/job/efficiency.h"
#include "core/job/job.h"
#include "core/job/job_rules.h"
#include "core/job/plan_request.h"

namespace stepcast::planner {

/// One way to split a transformer's training step: what a search of parallel plans varies. All else
/// (overlaps, formats, bucket, attention) is the job's.
///
///   Job with = applied(job, point);
struct PlanPoint {
  std::int32_t tensor = 1, context = 1, expert = 1, pipeline = 1, data = 1;
  std::int32_t virtual_stages = 1;
  /// PipelineSplit's weights of the ends. (A job that lists its layers keeps its list.)
  std::int32_t embedding_layers = 0, head_layers = 0;
  std::int32_t micro = 1;
  std::int32_t zero = 0;
  /// Level of ZeRO's shards: 0 over all replicas, i inside a unit of level i - 1 of the fabric,
  /// kNodeLevel inside a node.
  std::int32_t shard_level = 0;
  std::int32_t recompute_layers = 0;  ///< RecomputeKind::kFirstLayers: the first k of each stage
  RecomputeKind recompute = RecomputeKind::kNone;
  ScheduleKind schedule = ScheduleKind::kOneFOneB;
  bool sequence_parallel = false;

  auto operator<=>(const PlanPoint&) const = default;
  /// ZeRO stage by which gradients are exchanged.
  [[nodiscard]] std::int32_t exchanged() const { return exchanged_zero(zero, pipeline); }
  /// Ranks that hold the same parameters.
  [[nodiscard]] std::int64_t replicas() const { return std::int64_t{context} * data; }
  [[nodiscard]] std::int64_t devices() const {
    return std::int64_t{tensor} * context * pipeline * data;
  }
};

/// Properties that make two plans differ in kind: how ranks are split and what is sharded over
/// replicas. Plans of one kind differ in micro-batch, chunks, schedule, recomputation and where
/// sequences are split.
struct PlanKind {
  std::int32_t tensor = 1, context = 1, expert = 1, pipeline = 1, zero = 0;
  auto operator<=>(const PlanKind&) const = default;
};
inline PlanKind kind_of(const PlanPoint& p) {
  return {p.tensor, p.context, p.expert, p.pipeline, p.zero};
}

/// Families of plans whose steps are predicted differently well; the best of each is worth a look.
/// A workload with experts has plans of all three.
inline PlanFamily family_of(const PlanPoint& p) {
  return p.zero == 3    ? PlanFamily::kSharded
         : p.expert > 1 ? PlanFamily::kExperts
                        : PlanFamily::kTensorPipeline;
}

constexpr std::int32_t kNodeLevel = -1;

/// The layer assignment under the point: by its weights, or as the job lists.
PipelineSplit pipeline_split(const Job& job, const PlanPoint& point);
/// The job split as the point says, on as many devices as it needs.
Job applied(Job job, const PlanPoint& point);
/// The point a job stands for.
PlanPoint point_of(const Job& job);

/// "TP8+SP PP4 VPP3 ZeRO-1 DP2, micro-batch 1, 1F1B, recompute selective": what differs from a
/// plain job. `system` names its levels; without it they are numbered.
std::string describe(const PlanPoint& point, const System* system = nullptr);
/// Its point, and the layers of its chunks where it lists them.
std::string describe(const Job& job);
/// "embedding as 1 layer, head as 2", "layers 3, 2 x 4, 3"; "" where nothing is said.
std::string split_text(const PipelineSplit& split);
/// Name of PlanPoint::shard_level in a job; empty for all replicas.
std::string level_name(std::int32_t level, const System& system);
/// "1", "3 inside nvlink".
std::string zero_text(const PlanPoint& point, const System& system);
/// `modules`: what "selective" stands for.
std::string recompute_text(const PlanPoint& point, const RecomputeModules& modules = {});
std::string schedule_text(const PlanPoint& point);
/// "1F1B, head counts as 1 layer".
std::string schedule_title(const PlanPoint& point);
/// "tp-cp-dp-pp", the innermost first; "" for an order without a name.
std::string order_text(const MeshOrder& order);
/// Text of what is fixed, "tensor=8, zero=1"; "" for nothing.
std::string fixed_text(const FixedPlan& fixed);
/// "data, tensor", or "none".
std::string overlaps_text(const Overlap& overlap);

}  // namespace stepcast::planner
