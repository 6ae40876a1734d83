#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "core/job/job_rules.h"
#include "core/job/plan_request.h"
#include "planner/parallel/closed_form_model.h"
#include "planner/parallel/plan_point.h"

namespace stepcast::planner {

/// How layers are recomputed, and for kFirstLayers how many of a stage.
struct RecomputeChoice {
  RecomputeKind kind = RecomputeKind::kNone;
  std::int32_t layers = 0;
};

/// ZeRO stage and PlanPoint::shard_level.
struct ZeroChoice {
  std::int32_t stage = 0;
  std::int32_t level = 0;
};

/// How many chunks a stage has, and how layers are assigned to them: PlanPoint's.
struct DealChoice {
  std::int32_t virtual_stages = 1;
  std::int32_t embedding_layers = 0, head_layers = 0;
  std::size_t alike = 0;  ///< the first of ParallelSpace::deals with the same layers in every chunk
};

/// A schedule and what it runs over.
struct ScheduleChoice {
  DealChoice deal;
  ScheduleKind kind = ScheduleKind::kOneFOneB;
};

/// The legal parallel plans of a job, one dimension after the other: those that break no rule
/// (core/job/job_rules.h) and that the framework asked for can run, without points that are the
/// same plan under another name (sequence parallelism or ZeRO over one rank, a schedule of one
/// stage, first-k with k = all layers).
///
///   tensor     divides the devices, heads, widths, vocabulary; with it sequence_parallel
///   context    as tensor, with fused attention; 2 context divides the sequence. Where the job leaves
///              its algorithm open, each split has its fastest (LayerCostProbe::context_algorithm)
///   expert     as tensor; where expert_tensor is fixed, tensor = expert_tensor unless that is 1
///   pipeline   divides what is left, at most one stage per layer
///   data       what is left
///   micro      divides the samples of a replica
///   virtual_stages    with 1f1b, pipeline > 1 and micro-batches in multiples of it, and two in a V;
///                     at most one chunk per layer, chunks need not be equal
///   pipeline_split    even; embedding, head or both as a layer, where chunks are then equal (which
///                     takes one chunk or two more than layers, too); where the head has at least
///                     the parameters a token passes in a layer, the head as up to so many, rounded
///                     up, the embedding as one or none. Among weights that assign alike, the
///                     smallest that is legal
///   schedule   searched_schedules, where pipeline > 1
///   recompute  none, selective, full, the first k layers of every stage
///   zero       0 .. 3, where context * data > 1; 3 also inside a level of the fabric (HSDP)
///   weight gradients apart go with what leaves gradients and activations in place
class ParallelSpace {
 public:
  ParallelSpace(const Job& job, const FixedPlan& fixed);

  /// Legal (tensor, sequence_parallel, context, expert, pipeline, data); other fields at their
  /// defaults.
  [[nodiscard]] std::vector<PlanPoint> splits() const;
  /// At least one for each of them.
  [[nodiscard]] std::vector<std::int32_t> micros(const PlanPoint& split) const;
  /// How its parameters may be sharded.
  [[nodiscard]] std::vector<ZeroChoice> zeros(const PlanPoint& split) const;
  /// Chunks and layers of so many stages, whatever the schedule; fewer chunks first. Some deal out
  /// alike, under weights of which a framework may take one and reject another.
  [[nodiscard]] const std::vector<DealChoice>& deals(std::int32_t stages) const;
  /// For a split and its micro-batch; in the order of deals(), and of those alike the first legal.
  [[nodiscard]] std::vector<ScheduleChoice> schedules(const PlanPoint& point) const;
  /// Those of the first k layers last, by k.
  [[nodiscard]] std::vector<RecomputeChoice> recomputes(const PipelineLayout& layout,
                                                        ScheduleKind schedule) const;
  /// True for a legal plan, found elsewhere, that says what is fixed.
  [[nodiscard]] bool holds(const PlanPoint& point) const;
  /// Why a degree that is fixed is legal in no plan, if one is not.
  [[nodiscard]] std::optional<BrokenRule> broken_alone() const;
  /// True if weight gradients may be made apart, with the split's sharding.
  [[nodiscard]] bool splits_backward(const PlanPoint& split) const;

 private:
  [[nodiscard]] bool legal(const PlanPoint& point) const;
  [[nodiscard]] bool legal(const Job& job) const;
  /// The job under a split, as if with one of its deals.
  [[nodiscard]] Job split_job(const PlanPoint& split) const;
  /// True if it is legal with replicated states, or with sharded ones.
  [[nodiscard]] bool legal_somehow(const Job& job) const;
  /// True if it is legal with some batch.
  [[nodiscard]] bool possible(PlanPoint point) const;
  /// The micro-batch that is legal if any is: what a larger one divides, it divides.
  [[nodiscard]] std::int32_t safest_micro(const PlanPoint& split) const;
  /// Layers that embedding and head may count as, with one chunk a stage: a layer at most, or as
  /// many layers as the head is worth.
  [[nodiscard]] std::vector<DealChoice> searched_ends() const;
  [[nodiscard]] std::vector<DealChoice> make_deals(std::int32_t stages) const;
  [[nodiscard]] std::vector<std::int32_t> degrees(std::int32_t PlanPoint::*field,
                                                  const std::optional<std::int64_t>& fixed,
                                                  std::int64_t most) const;

  Job job_;  // without fits and without layers listed by stage
  std::vector<std::int64_t> listed_;
  std::vector<ScheduleKind> searched_;
  std::int64_t devices_;
  FixedPlan fixed_;
  std::int32_t fixed_level_ = 0;  // of a fixed ZeRO stage
  std::int32_t most_head_ = 0;    // layers that the head is worth, where at least one
  std::map<std::int32_t, std::vector<DealChoice>> deals_;  // by stages
  bool recomputed_[4][2] =
      {};  // may this RecomputeKind go without weight gradients apart, and with?
};

/// The schedules that are searched for a job, the plain one first. In a V both ends of the model
/// are on one stage: what they share then has no closed form. A forward beside a backward pass pays
/// where exchanges of experts hide in it.
std::vector<ScheduleKind> searched_schedules(const Job& job);

/// The job without fitted constants: cheap to copy, and all that a graph needs.
Job without_fits(Job job);

/// Divisors of n, ascending.
std::vector<std::int32_t> divisors_of(std::int64_t n);

}  // namespace stepcast::planner
