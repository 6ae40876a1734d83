#include <algorithm>
#include <limits>
#include <numeric>

#include "core/clearly_less.h"
#include "core/graph/embedding_placement.h"
#include "core/job_split.h"
#include "planner/parallel/layer_cost_probe.h"
#include "workloads/build_graph.h"

/// Keys: the parts of a point and its place on the fabric that costs of a reduced step depend on.
namespace stepcast::planner {

/// True if context ranks lie apart, which decides how attention works over them.
bool LayerCostProbe::context_apart(const PlanPoint& point) const {
  return point.context > 1 && job_.parallel.order[1] != Axis::kContext;
}

bool LayerCostProbe::passes_use_data(const PlanPoint& point) const {
  return point.replicas() > 1 &&
         (point.exchanged() >= 2 || point.expert > 1 || context_apart(point));
}

bool LayerCostProbe::has_copies(const PlanPoint& point) const {
  if (point.replicas() > 1 || !job_.workload.transformer()->moe) {
    return point.replicas() > 1;
  }
  Parallel p = job_.parallel;
  p.tensor = point.tensor;
  p.context = point.context;
  p.data = point.data;
  p.expert = point.expert;
  const ExpertSplit split = p.expert_split();
  return point.tensor > split.ranks * split.tensor;
}

bool LayerCostProbe::deals_matrices(const PlanPoint& point) const {
  const bool over_tensor = point.tensor > 1 && job_.muon.shards == MuonShards::kLayerSharded;
  return job_.orthogonalises() && (over_tensor || (point.exchanged() > 0 && has_copies(point)));
}

bool LayerCostProbe::states_use_chunks(const PlanPoint& point,
                                       const ByRole<StateCosts>& states) const {
  return point.virtual_stages > 1 &&
         (deals_matrices(point) || (point.replicas() > 1 && layers_share_buckets(states)));
}

LayerCostProbe::Placement LayerCostProbe::placement(const PlanPoint& point) const {
  const Mesh mesh = mesh_of(job_, point);
  if (job_.parallel.expert_dispatch == ExpertDispatch::kPerMachine) {  // machines are no level
    return {mesh.stride(Axis::kContext), mesh.stride(Axis::kData), mesh.stride(Axis::kPipeline),
            point.pipeline, point.data};
  }
  const std::vector<FabricLevel>& levels = job_.system.fabric;
  const auto unit = static_cast<std::int32_t>(
      levels.size() < 2
          ? 1
          : std::max<std::int64_t>(job_.system.devices_in_level(levels.size() - 2), 1));
  // Ranks that are whole units apart share none, however many: the outermost level joins them.
  const auto seen = [unit](std::int32_t stride) { return stride % unit == 0 ? unit : stride; };
  const std::int32_t stage = mesh.stride(Axis::kPipeline);
  return {seen(mesh.stride(Axis::kContext)), seen(mesh.stride(Axis::kData)), seen(stage),
          point.pipeline > 1 ? stage % unit : 0, (point.pipeline - 1) * stage % unit};
}

std::optional<PlanPoint> LayerCostProbe::on_one_stage(const PlanPoint& point) const {
  PlanPoint one = point;
  one.zero = point.exchanged();
  one.data *= one.pipeline;
  one.pipeline = one.virtual_stages = 1;
  one.embedding_layers = one.head_layers = 0;
  const Mesh mesh = mesh_of(job_, point);
  const Mesh other = mesh_of(job_, one);
  const auto alike = [&](Axis axis) { return mesh.stride(axis) == other.stride(axis); };
  if (!job_.parallel.pipeline_split.layers.empty() || !alike(Axis::kTensor) ||
      !alike(Axis::kContext)) {
    return std::nullopt;
  }
  if (passes_use_data(point) || passes_use_data(one)) {
    const Placement own = placement(point);
    if (job_.parallel.expert_dispatch == ExpertDispatch::kPerMachine ||
        own.data != placement(one).data || own.second != 0 || own.last != 0 ||
        point.replicas() % point.expert != 0) {
      return std::nullopt;
    }
  }
  return one;
}

bool LayerCostProbe::passes_use_order(const PlanPoint& point) const {
  return job_.parallel.overlap.data && clock_ == CostBasis::kUsual && point.replicas() > 1 &&
         point.exchanged() >= 2;
}

/// The point without what passes do not depend on.
PlanPoint LayerCostProbe::pass_point(const PlanPoint& point) const {
  PlanPoint key = point;
  if (point.exchanged() < 2 || !passes_use_data(point)) {
    key.zero = 0;
    key.shard_level = 0;
  }
  key.data = passes_use_data(point) ? point.data : 1;
  if (key.zero < 2 && key.data > 1 && point.replicas() % point.expert == 0 &&
      !context_apart(point) && job_.parallel.expert_dispatch != ExpertDispatch::kPerMachine) {
    key.data = point.expert / std::gcd(point.expert, point.context);  // of whole parameters one
  }                                                                   // group of experts says all
  return key;
}

ContextAlgorithm LayerCostProbe::context_algorithm(const PlanPoint& point) {
  if (point.context == 1 || job_.parallel.context_algorithm != ContextAlgorithm::kAuto) {
    return job_.parallel.context_algorithm;
  }
  PlanPoint of;
  of.tensor = point.tensor;
  of.sequence_parallel = point.sequence_parallel;
  of.context = point.context;
  of.micro = point.micro;
  if (context_apart(point)) {
    of.data = point.data;
    of.pipeline = point.pipeline;
  }
  {
    const std::lock_guard lock(algorithms_->mutex);
    if (const auto known = algorithms_->chosen.find(of); known != algorithms_->chosen.end()) {
      return known->second;
    }
  }
  const ContextAlgorithm fastest = fastest_algorithm(of);
  const std::lock_guard lock(algorithms_->mutex);
  return algorithms_->chosen.emplace(of, fastest).first->second;
}

ContextAlgorithm LayerCostProbe::fastest_algorithm(const PlanPoint& point) const {
  Job job = job_;  // of layers without experts, which have the same attention
  auto& model = std::get<TransformerWorkload>(job.workload.model);
  model.moe.reset();
  model.predictions = 0;  // their layers have experts, too
  job.batch.global = std::int64_t{point.micro} * point.data;
  const Mesh mesh = mesh_of(job, point);
  StageCosts costs(costs_, CostBasis::kUsual);
  // One layer, with what is the same under every algorithm.
  const auto seconds_of_layer = [&](MixerKind mixer) {
    const StageLayers layers(point.pipeline == 1 ? 1 : 3, {{mixer, FeedForwardKind::kDense}});
    const ReducedStage middle = probed_stages(job, pass_point(point), layers, false,
                                              workloads::build_passes)[middle_of(layers)];
    const PassCosts passes = costs.passes(middle, mesh, point.schedule, {}).costs;
    return passes.forward.base + passes.backward.base;
  };
  ContextAlgorithm fastest = ContextAlgorithm::kAuto;
  double least = std::numeric_limits<double>::infinity();
  for (const ContextAlgorithm algorithm : context_algorithms(applied(job, point))) {
    job.parallel.context_algorithm = algorithm;
    double seconds = 0;
    for (const MixerKind mixer : {MixerKind::kAttention, MixerKind::kWindow}) {
      std::int32_t count = 0;
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        count += kinds_[kind].mixer == mixer ? counts_.of[kind] : 0;
      }
      seconds += count > 0 ? count * seconds_of_layer(mixer) : 0;
    }
    if (clearly_less(seconds, least)) {
      least = seconds;
      fastest = algorithm;
    }
  }
  return fastest;
}

Job settled(const Job& job, const PlanPoint& point, const models::CostModel& model) {
  Job with = applied(job, point);
  with.parallel.context_algorithm = LayerCostProbe(job, model).context_algorithm(point);
  return with;
}

}  // namespace stepcast::planner
