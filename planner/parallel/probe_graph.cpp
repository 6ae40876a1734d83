#include "planner/parallel/probe_graph.h"

#include <algorithm>

#include "core/job/job_rules.h"
#include "core/job/layer_split.h"
#include "workloads/transformer/shape.h"

namespace stepcast::planner {
namespace {

/// Fits a reduced job to the real mesh: in how many machines experts lie, and how many replicas lie
/// inside the level that ZeRO shards in.
void fit_to_mesh(const Job& job, const PlanPoint& point, Job& reduced) {
  const Job real = applied(job, point);
  if (reduced.parallel.expert_dispatch == ExpertDispatch::kPerMachine && point.expert > 1) {
    reduced.parallel.expert_machines = expert_machines(real).value_or(0);
  }
  if (point.shard_level != 0) {
    const Parallel& p = reduced.parallel;
    System& system = reduced.system;
    const std::int64_t replicas = workloads::shard_ranks(real) / point.context;
    system.fabric.resize(2);
    system.fabric[0].size = replicas * p.mesh().stride(Axis::kData);
    system.fabric[1].size = p.data / replicas;
    system.fabric[0].used = system.fabric[1].used = 0;
    reduced.parallel.zero_level = system.fabric[0].name;
  }
}

}  // namespace

bool has_experts(const TransformerWorkload& model, const BlockKind& kind) {
  return kind.feed_forward == FeedForwardKind::kExperts ||
         (model.predictions > 0 && model.prediction_kind.feed_forward == FeedForwardKind::kExperts);
}

Part part_of(const Segment& segment) {
  switch (segment.kind) {
    case SegmentKind::kBegin:
      return Part::kBegin;
    case SegmentKind::kForward:
      return segment.microbatches == MicrobatchRole::kFirst ? Part::kFirstForward : Part::kForward;
    case SegmentKind::kBackward:
      return segment.microbatches == MicrobatchRole::kLast ? Part::kLastBackward : Part::kBackward;
    case SegmentKind::kWeights:
      return segment.microbatches == MicrobatchRole::kLast ? Part::kLastBackward : Part::kWeights;
    case SegmentKind::kFinish:
    case SegmentKind::kOther:
      break;
  }
  return Part::kFinish;
}

bool gathers_first(const Program& program) {
  return std::any_of(program.segments.begin(), program.segments.end(),
                     [](const Segment& s) { return part_of(s) == Part::kFirstForward; });
}

std::vector<ReducedStage> probed_stages(const Job& job, const PlanPoint& point,
                                        const StageLayers& layers, bool two,
                                        ExecutionGraph (*build)(const Job&)) {
  PlanPoint split = point;
  split.pipeline = static_cast<std::int32_t>(layers.size());
  split.virtual_stages = 1;
  split.schedule = plain_schedule(splits_weights(split.schedule));
  std::vector<BlockKind> pattern;
  PipelineSplit by_stage;
  for (const std::vector<BlockKind>& kinds : layers) {
    pattern.insert(pattern.end(), kinds.begin(), kinds.end());
    by_stage.layers.push_back(static_cast<std::int64_t>(kinds.size()));
  }
  const TransformerWorkload& whole = *job.workload.transformer();
  const bool experts = std::any_of(pattern.begin(), pattern.end(),
                                   [&](const BlockKind& kind) { return has_experts(whole, kind); });
  split.expert = experts ? split.expert : 1;
  Job reduced = applied(job, split);
  if (!experts) {
    reduced.parallel.expert_dispatch = ExpertDispatch::kCopies;
    reduced.formats.expert_dispatch.reset();
  }
  if (split.shard_level != 0 || reduced.parallel.expert_dispatch == ExpertDispatch::kPerMachine) {
    fit_to_mesh(job, point, reduced);
  }
  const std::int64_t microbatches = two && reduced.microbatches() > 1 ? 2 : 1;
  reduced.batch.global = reduced.batch.micro * reduced.parallel.data * microbatches;
  auto& model = std::get<TransformerWorkload>(reduced.workload.model);
  model.layers = static_cast<std::int64_t>(pattern.size());
  model.pattern = std::move(pattern);
  std::int64_t& again = reduced.parallel.recompute.layers;
  again = std::min(again, *std::max_element(by_stage.layers.begin(), by_stage.layers.end()));
  reduced.parallel.pipeline_split = layers.size() > 1 ? std::move(by_stage) : PipelineSplit{};
  const auto graph = std::make_shared<const ExecutionGraph>(build(reduced));
  std::vector<ReducedStage> stages;
  for (std::int32_t stage = 0; stage < split.pipeline; ++stage) {
    stages.push_back({graph, stage});
  }
  return stages;
}

Mesh mesh_of(const Job& job, const PlanPoint& point) {
  return {point.tensor, point.context, point.pipeline, point.data, job.parallel.order};
}

std::vector<std::int32_t> real_ranks(const ReducedStage& stage, const Mesh& to,
                                     std::int32_t communicator) {
  const Mesh& from = stage.graph->mesh;
  std::vector<std::int32_t> ranks = stage.graph->members(communicator, stage.rank());
  for (std::int32_t& rank : ranks) {
    const std::int32_t reduced = from.coordinate(rank, Axis::kPipeline);
    const std::int32_t place = reduced == 0                   ? 0
                               : reduced == from.pipeline - 1 ? to.pipeline - 1
                                                              : std::min(1, to.pipeline - 1);
    rank = from.coordinate(rank, Axis::kTensor) * to.stride(Axis::kTensor) +
           from.coordinate(rank, Axis::kContext) * to.stride(Axis::kContext) +
           place * to.stride(Axis::kPipeline) +
           from.coordinate(rank, Axis::kData) * to.stride(Axis::kData);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace stepcast::planner
