#include "planner/parallel/layer_cost_probe.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/graph/embedding_placement.h"
#include "core/job/layer_split.h"
#include "planner/parallel/internal/role_lines.h"
#include "planner/parallel/pipeline_layout.h"
#include "workloads/build_graph.h"
#include "workloads/transformer/shape.h"

namespace stepcast::planner {
namespace {

/// A layer that fills more buckets shares hardly any with the next: of a layer's matrices none is
/// larger than about a third, so each fills a bucket of its own.
constexpr double kBucketsOfALayer = 8;
constexpr std::int64_t kMostLayers = std::numeric_limits<std::int64_t>::max();
/// Number of layers that have all the buffers which layers take in turn.
constexpr std::int64_t kBuffered = 3;
/// Layers of all graphs that are kept of a split, for the sake of memory.
constexpr std::int64_t kMostKept = 500;

/// Notes the messages that a stage in the middle receives.
void note_messages(const Program& program, Passes& passes) {
  for (const Segment& segment : program.segments) {
    const bool forward = part_of(segment) == Part::kForward;
    for (const Op& op : program.ops_of(segment)) {
      if (op.kind == OpKind::kRecv) {
        (forward ? passes.forward_message : passes.backward_message) = op;
      }
    }
  }
}

/// The part of a point that a search task holds fixed.
auto task_of(const PlanPoint& p) {
  return std::tuple(p.tensor, p.sequence_parallel, p.context, p.micro);
}

/// The part that its split and micro-batch are.
auto split_of(const PlanPoint& p) { return std::tuple(task_of(p), p.pipeline, p.data); }

TransformerWorkload& model_of(Job& job) {
  return std::get<TransformerWorkload>(job.workload.model);
}

std::vector<BlockKind> kinds_of(const Job& job) {
  STEPCAST_CHECK(job.workload.transformer() != nullptr, "'{}' is no transformer",
                 job.workload.name);
  return block_kinds(*job.workload.transformer());
}

}  // namespace

LayerCostProbe::LayerCostProbe(const Job& job, const models::CostModel& model, CostBasis clock)
    : job_(job),
      model_(model),
      clock_(clock),
      kinds_(kinds_of(job)),
      counts_(counts_of(*job.workload.transformer())),
      costs_(model, clock, job.parallel.overlap.data, kinds_.size() > 1) {
  if (job.phase != JobPhase::kTrain) {
    throw InputError("phase", "plans are searched for training steps; use train");
  }
  model_of(job_).pattern = {kinds_.front()};
}

LayerCostProbe::LayerCostProbe(const LayerCostProbe& other, CostBasis clock)
    : job_(other.job_),
      model_(other.model_),
      clock_(clock),
      kinds_(other.kinds_),
      counts_(other.counts_),
      costs_(other.costs_, clock),
      algorithms_(other.algorithms_),
      graphs_(other.graphs_),
      state_graphs_(other.state_graphs_) {}

/// True if buckets hold parameters of several layers.
bool LayerCostProbe::layers_share_buckets(const ByRole<StateCosts>& states,
                                          std::int64_t shards) const {
  const auto of = [&](ChunkRole role) {
    return states[static_cast<std::size_t>(role)].gradients.layer.front();
  };
  const double layer = of(ChunkRole::kWhole) > 0 ? of(ChunkRole::kWhole) : of(ChunkRole::kMiddle);
  const std::int64_t most = job_.devices;  // ranks that may hold the same parameters
  return layer * static_cast<double>(shards) < kBucketsOfALayer * bucket_size(job_, most).base();
}

/// In buckets that layers share a few of them do not show it to the precision of a bound. Where
/// gradients are sharded a layer has as many times more.
bool LayerCostProbe::exchange_settles(const PlanPoint& point,
                                      const ByRole<StateCosts>& states) const {
  return deals_matrices(point)   ? false
         : point.exchanged() < 2 ? !layers_share_buckets(states)
                                 : !least() || !layers_share_buckets(states, least_shards(point));
}

std::int64_t LayerCostProbe::state_layers(const PlanPoint& point,
                                          const ByRole<StateCosts>& states) const {
  const bool settles = states_use_passes() && exchange_settles(point, states);
  return std::min(most_layers(point), settles ? kSettled + 2 : kMostLayers);
}

/// Ranks that gradients of the point are sharded over, those of experts over the fewest.
std::int64_t LayerCostProbe::least_shards(const PlanPoint& point) const {
  return std::max<std::int64_t>(workloads::shard_ranks(applied(job_, point)) / point.expert, 1);
}

bool LayerCostProbe::states_use_passes() const { return job_.parallel.overlap.data; }

bool LayerCostProbe::states_hide_exchange(const PlanPoint& point) const {
  // Chunks exchange while others of their stage still work, and what layers with and without
  // experts leave exposed is no sum.
  return clock_ == CostBasis::kLowerBound && states_use_passes() &&
         (point.virtual_stages > 1 || unlike_states());
}

LayerCostProbe::Hop LayerCostProbe::hop(const Op& message, const PlanPoint& point,
                                        std::int32_t crossing) const {
  const std::int32_t stride = mesh_of(job_, point).stride(Axis::kPipeline);
  const bool least = clock_ == CostBasis::kLowerBound && job_.parallel.overlap.pipeline;
  const std::int32_t next = (crossing + 1) % point.pipeline;
  const std::array<std::int32_t, 2> ranks{std::min(crossing, next) * stride,
                                          std::max(crossing, next) * stride};
  const GroupShape pair = group_shape(model_.system(), ranks, point.devices());
  return {least ? 0 : model_.collective(message, pair).time.base(), levels_of(pair)};
}

template <class T, std::size_t N, class Stages, class Costs>
ByRole<T> LayerCostProbe::lines(bool whole, std::int64_t fewer, std::int64_t more,
                                const std::array<Line T::*, N>& fields, const Stages& stages,
                                const Costs& costs) {
  const std::int32_t parts = whole ? 1 : kEqualStages;
  std::vector<T> low;
  for (const ReducedStage& stage : stages(parts, parts * fewer)) {
    low.push_back(costs(stage));
  }
  std::size_t i = 0;
  for (const ReducedStage& stage : stages(parts, parts * (fewer + more))) {
    to_lines(low[i++], costs(stage), fields, static_cast<double>(fewer), static_cast<double>(more));
  }
  ByRole<T> role;
  role.fill(low.front());
  if (!whole) {
    role[static_cast<std::size_t>(ChunkRole::kMiddle)] = low[1];
    role[static_cast<std::size_t>(ChunkRole::kLast)] = low.back();
  }
  return role;
}

template <class T, class Costs>
void LayerCostProbe::add_ends(const std::vector<ReducedStage>& stages, ByRole<T>& role,
                              const Costs& costs) {
  role[static_cast<std::size_t>(ChunkRole::kEmbedding)] = costs(stages.front());
  role[static_cast<std::size_t>(ChunkRole::kHead)] = costs(stages.back());
}

std::int64_t LayerCostProbe::most_layers(const PlanPoint& point) const {
  return most_layers_of_chunk(job_.workload.transformer()->layers,
                              std::int64_t{point.pipeline} * point.virtual_stages,
                              pipeline_split(job_, point));
}

bool LayerCostProbe::empty_ends(const PlanPoint& point) const {
  const PipelineSplit split = pipeline_split(job_, point);
  if (split == PipelineSplit{}) {
    return false;
  }
  const auto ranges = split_layers(job_.workload.transformer()->layers,
                                   std::int64_t{point.pipeline} * point.virtual_stages, split);
  return ranges.front().count == 0 || ranges.back().count == 0;
}

/// Without what no reduced graph depends on.
LayerCostProbe::GraphKey LayerCostProbe::graph_key(const PlanPoint& key, std::int32_t stages,
                                                   std::int64_t layers) const {
  const TransformerWorkload& model = *job_.workload.transformer();
  GraphKey of{key, {}, stages, layers, model.pattern, model.moe.has_value()};
  of.point.virtual_stages = 1;
  of.point.embedding_layers = of.point.head_layers = 0;
  if (!splits_weights(key.schedule)) {
    of.point.schedule = ScheduleKind::kOneFOneB;
  }
  return of;
}

const std::vector<ReducedStage>& LayerCostProbe::pass_stages(const PlanPoint& key,
                                                             std::int32_t stages,
                                                             std::int64_t layers) {
  GraphKey of = graph_key(key, stages, layers);
  if (key.shard_level == 0 && job_.parallel.expert_dispatch != ExpertDispatch::kPerMachine) {
    of.context = job_.parallel.context_algorithm;
    of.point.pipeline = 1;
  }
  // The tasks of a search come one after the other, each with a few graphs.
  if (!graphs_->empty() && task_of(graphs_->begin()->first.point) != task_of(key)) {
    graphs_->clear();
  }
  auto it = graphs_->find(of);
  if (it == graphs_->end()) {
    const bool alone = key.zero == 0;  // else weights are gathered and gradients scattered in them
    it = graphs_
             ->emplace(of, probed_stages(job_, key, stages, layers, passes_use_data(key),
                                         alone ? workloads::build_passes : workloads::build_graph))
             .first;
  }
  return it->second;
}

const std::vector<ReducedStage>& LayerCostProbe::state_stages(const PlanPoint& key,
                                                              std::int32_t stages,
                                                              std::int64_t layers) {
  const GraphKey of = graph_key(key, stages, layers);
  if (!state_graphs_->empty() && split_of(state_graphs_->begin()->first.point) != split_of(key)) {
    state_graphs_->clear();
  }
  auto it = state_graphs_->find(of);
  if (it == state_graphs_->end()) {
    const auto kept = std::accumulate(
        state_graphs_->begin(), state_graphs_->end(), std::int64_t{0},
        [](std::int64_t sum, const auto& graph) { return sum + graph.first.layers; });
    if (kept > kMostKept) {
      state_graphs_->clear();
    }
    it = state_graphs_
             ->emplace(of, probed_stages(job_, key, stages, layers, passes_use_data(key),
                                         workloads::build_graph))
             .first;
  }
  return it->second;
}

LayerCostProbe::PassKey LayerCostProbe::pass_key(const PlanPoint& point) const {
  const bool order = passes_use_order(point);
  PassKey key{
      point, {}, order ? std::min(most_layers(point), kMostToldApart) : 1, empty_ends(point)};
  PlanPoint& p = key.point;
  p.virtual_stages = 1;
  p.embedding_layers = p.head_layers = p.recompute_layers = 0;
  if (!splits_weights(p.schedule) && !order) {
    p.schedule = ScheduleKind::kOneFOneB;
  }
  if (!passes_use_data(point) || point.exchanged() < 2) {
    key.placement = passes_use_data(point) ? placement(point) : Placement{};
    p.zero = p.shard_level = 0;  // states alone are no pass's business
    // Experts on tensor ranks too lie on fewer replicas than there are of them.
    p.data = point.replicas() % point.expert == 0 ? 1 : point.data;
    p.pipeline = std::min(p.pipeline, 2);
  }
  return key;
}

Passes LayerCostProbe::passes_of(const PlanPoint& point) {
  const Mesh mesh = mesh_of(job_, point);
  const PlanPoint key = pass_point(point);
  Passes passes;
  costs_.take_levels();
  const auto costs = [&](const ReducedStage& stage) {
    if (stage.index == 1) {
      note_messages(stage.program(), passes);
    }
    return costs_.passes(stage, mesh, point.schedule);
  };
  if (point.pipeline == 1 || passes_use_order(point)) {
    // Buffers that layers take in turn hold a pass up only once there are more layers than buffers.
    const bool held_up = passes_use_order(point);
    const std::int64_t most = std::min(most_layers(point), kMostToldApart);
    const std::int64_t fewer = held_up ? std::max<std::int64_t>(most - 2, 1) : 1;
    const std::int64_t more = held_up ? std::clamp<std::int64_t>(most - fewer, 1, 2) : 1;
    const auto stages = [&](std::int32_t parts, std::int64_t layers) {
      return held_up ? state_stages(key, parts, layers) : pass_stages(key, parts, layers);
    };
    passes.role = lines(point.pipeline == 1, fewer, more, kPassFields, stages, costs);
    if (least() && point.pipeline == 1 && point.zero == 3 && passes_use_data(point)) {
      // Gathers of one layer are free to the least clock, so a second may add more than others do.
      const ByRole<PassCosts> next = lines(true, 2, 1, kPassFields, stages, costs);
      for (std::size_t role = 0; role < kChunkRoles; ++role) {
        for (const auto field : {&PassCosts::forward, &PassCosts::backward, &PassCosts::weights}) {
          Line& line = passes.role[role].*field;
          const double layer = std::min(line.layer[0], (next[role].*field).layer[0]);
          line.base += line.layer[0] - layer;
          line.layer[0] = layer;
        }
      }
    }
  } else {
    std::vector<PassCosts> by_stage;
    for (const ReducedStage& stage : pass_stages(key, kUnequalStages, unequal_layers(1))) {
      by_stage.push_back(costs(stage));
    }
    passes.role = by_role(std::move(by_stage), kPassFields, 1);
  }
  if (empty_ends(point)) {
    add_ends(pass_stages(key, kEqualStages, kEmptyEnds), passes.role, costs);
  }
  passes.levels = costs_.take_levels();
  return passes;
}

/// The point without what its states do not depend on.
PlanPoint LayerCostProbe::state_key(const PlanPoint& point) const {
  PlanPoint key = point;
  if (!states_use_passes()) {  // whatever the micro-batch: of few, only all their bytes matter
    const std::int64_t samples = job_.batch.global / point.data;
    key.micro = static_cast<std::int32_t>(samples);
    const bool sharded = passes_use_data(point) && point.micro < samples;
    const std::int64_t tokens = job_.batch.sequence / point.context;
    for (std::int32_t several = 2; sharded && several <= samples; ++several) {
      const bool splits =
          !point.sequence_parallel || samples / several * tokens % point.tensor == 0;
      if (samples % several == 0 && splits) {
        key.micro = static_cast<std::int32_t>(samples / several);
        break;
      }
    }
    key.recompute = RecomputeKind::kNone;
    key.schedule = ScheduleKind::kOneFOneB;
  }
  return key;
}

ByRole<StateCosts> LayerCostProbe::states_of(const PlanPoint& point, bool hidden) {
  const Mesh mesh = mesh_of(job_, point);
  const PlanPoint key = state_key(point);
  const auto of = [&](const ReducedStage& stage) { return costs_.states(stage, mesh, hidden); };
  const bool overlapped = has_copies(point) && states_use_passes();
  const auto stages = [&](std::int32_t parts, std::int64_t layers) {
    return state_stages(key, parts, layers);
  };
  const bool whole = point.pipeline == 1;
  // A layer is like the next once there are so many.
  const auto alike_from = [&](std::int64_t layers) {
    if (whole) {
      return lines(whole, layers, 1, kStateFields, stages, of);
    }
    std::vector<StateCosts> by_stage;
    for (const ReducedStage& stage : stages(kUnequalStages, unequal_layers(layers))) {
      by_stage.push_back(of(stage));
    }
    return by_role(std::move(by_stage), kStateFields, static_cast<double>(layers));
  };
  // Overlapped with passes, or in shared buckets, one layer more is no measure of the exchange: it
  // is priced at the numbers of layers that chunks have, or at so many that it goes on alike.
  const std::int64_t most = std::max<std::int64_t>(most_layers(point) - 1, 1);
  const bool deals = deals_matrices(point);
  if (overlapped && hidden && !deals) {
    return alike_from(point.exchanged() < 2 ? 1 : std::min(most, kBuffered));
  }
  ByRole<StateCosts> costs;
  if (overlapped) {
    const std::int64_t settled = std::min(most, kSettled);
    costs = lines(whole, settled, 1, kStateFields, stages, of);
    if (settled == most) {
      return costs;
    }
    if (exchange_settles(point, costs)) {
      catch_up(costs);
      return costs;
    }
  } else {
    costs = alike_from(1);
  }
  if (overlapped || deals || (has_copies(point) && layers_share_buckets(costs))) {
    costs = lines(whole, most, 1, kStateFields, stages, of);
  }
  return costs;
}

/// An exchange that overlaps with passes and catches up with each layer has caught up at some: it
/// then stays as it is, of which the least is nothing.
void LayerCostProbe::catch_up(ByRole<StateCosts>& states) const {
  for (StateCosts& c : states) {
    for (const auto part : {&StateCosts::exchange, &StateCosts::after_ends}) {
      Line& line = c.*part;
      if (line.layer[0] < 0) {
        const double reached = line.base + line.layer[0] * (kSettled + 1);
        line = {clock_ == CostBasis::kLowerBound ? std::min(reached, 0.0) : reached, {}};
      }
    }
  }
}

template <class Make>
auto LayerCostProbe::of_kind(std::size_t kind, PlanPoint point, const Make& make) {
  const auto pattern = std::exchange(model_of(job_).pattern, {kinds_[kind]});
  const auto dispatch = job_.parallel.expert_dispatch;
  const auto format = job_.formats.expert_dispatch;
  if (!has_experts(kind)) {
    point.expert = 1;
    job_.parallel.expert_dispatch = ExpertDispatch::kCopies;
    job_.formats.expert_dispatch = std::nullopt;
  }
  auto made = make(point);
  model_of(job_).pattern = pattern;
  job_.parallel.expert_dispatch = dispatch;
  job_.formats.expert_dispatch = format;
  return made;
}

std::size_t LayerCostProbe::states_like(std::size_t kind) const {
  const auto alike = [&](const BlockKind& other) {
    return other.feed_forward == kinds_[kind].feed_forward &&
           (other.mixer == kinds_[kind].mixer || (other.attends() && kinds_[kind].attends()));
  };
  return static_cast<std::size_t>(std::find_if(kinds_.begin(), kinds_.end(), alike) -
                                  kinds_.begin());
}

bool LayerCostProbe::unlike_states() const {
  for (std::size_t kind = 1; kind < kinds_.size(); ++kind) {
    if (states_like(kind) > 0) {
      return true;
    }
  }
  return false;
}

template <class Make>
auto LayerCostProbe::with_algorithm(const PlanPoint& point, const Make& make) {
  const ContextAlgorithm algorithm = context_algorithm(point);
  const ContextAlgorithm said = std::exchange(job_.parallel.context_algorithm, algorithm);
  auto made = make();
  job_.parallel.context_algorithm = said;
  return made;
}

Passes LayerCostProbe::passes(const PlanPoint& point) {
  return with_algorithm(point, [&] { return passes_of_kinds(point); });
}

Passes LayerCostProbe::passes_of_kind(const PlanPoint& point, std::size_t kind) {
  return of_kind(kind, point, [&](const PlanPoint& of) {
    if (has_experts(kind)) {
      return passes_of(of);
    }
    const PassKey key = pass_key(of);
    auto it = dense_[kind].find(key);
    if (it == dense_[kind].end()) {
      it = dense_[kind].emplace(key, passes_of(of)).first;
    }
    return it->second;
  });
}

Passes LayerCostProbe::passes_of_kinds(const PlanPoint& point) {
  Passes passes = passes_of(point);
  for (std::size_t kind = 1; kind < kinds_.size(); ++kind) {
    const ByRole<PassCosts> alike = passes_of_kind(point, kind).role;
    take_kind(passes.role, alike, kind, kPassFields);
    for (std::size_t role = 0; role < kChunkRoles; ++role) {
      const Line& temporaries = alike[role].temporaries;
      passes.role[role].temporaries_alone[kind] = temporaries.base + temporaries.layer[0];
    }
  }
  return passes;
}

/// Temporaries of chunks with layers of several kinds: stages of one layer of each.
void LayerCostProbe::add_mixed(const PlanPoint& point, ChunkRole role, const LayerCounts& layers,
                               Passes& passes) {
  double& temporaries =
      passes.role.at(static_cast<std::size_t>(role)).mixed_temporaries[layers.present()];
  if (temporaries > 0) {
    return;
  }
  std::vector<BlockKind> present;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    if (layers.of[kind] > 0) {
      present.push_back(kinds_[kind]);
    }
  }
  const bool whole = role == ChunkRole::kWhole;
  const std::int32_t parts = whole ? 1 : kEqualStages;
  const std::int32_t stage = role == ChunkRole::kMiddle ? 1 : role == ChunkRole::kLast ? 2 : 0;
  const auto each = static_cast<std::int64_t>(present.size());
  const auto pattern = std::exchange(model_of(job_).pattern, std::move(present));
  temporaries = with_algorithm(point, [&] {
    const auto& stages = pass_stages(pass_point(point), parts, each * parts);
    return pass_temporaries(stages[static_cast<std::size_t>(stage)]);
  });
  model_of(job_).pattern = pattern;
}

ByRole<StateCosts> LayerCostProbe::states(const PlanPoint& point, bool hidden, bool ends) {
  return with_algorithm(point, [&] { return states_of_kinds(point, hidden, ends); });
}

ByRole<StateCosts> LayerCostProbe::states_of_kind(const PlanPoint& point, std::size_t kind,
                                                  bool hidden) {
  return of_kind(kind, point, [&](const PlanPoint& of) {
    if (has_experts(kind)) {
      return states_of(of, hidden);
    }
    auto& known = dense_states_[kind];
    auto it = known.find({of, hidden});
    if (it == known.end()) {
      it = known.emplace(std::pair(of, hidden), states_of(of, hidden)).first;
    }
    return it->second;
  });
}

ByRole<StateCosts> LayerCostProbe::states_of_kinds(const PlanPoint& point, bool hidden, bool ends) {
  hidden = hidden || states_hide_exchange(point);
  ByRole<StateCosts> states = states_of(point, hidden);
  if (ends || empty_ends(point)) {
    const Mesh mesh = mesh_of(job_, point);
    add_ends(state_stages(state_key(point), kEqualStages, kEmptyEnds), states,
             [&](const ReducedStage& stage) { return costs_.states(stage, mesh, hidden); });
  }
  for (std::size_t kind = 1; kind < kinds_.size(); ++kind) {
    const std::size_t like = states_like(kind);
    if (like < kind) {
      for (StateCosts& c : states) {
        for (const auto field : kStateFields) {
          (c.*field).layer[kind] = (c.*field).layer[like];
        }
        c.buffers_in_turn[kind] = like == 0 ? c.buffers.base : c.buffers_in_turn[like];
      }
      continue;
    }
    const ByRole<StateCosts> alike = states_of_kind(point, kind, hidden);
    take_kind(states, alike, kind, kStateFields);
    for (std::size_t role = 0; role < kChunkRoles; ++role) {
      states[role].buffers_in_turn[kind] = alike[role].buffers.base;
    }
    if (least() && (deals_matrices(point) ||
                    layers_share_buckets(states))) {  // a bucket may have room for one more
      for (StateCosts& c : states) {
        c.exchange.layer[kind] = c.after_ends.layer[kind] = 0;
      }
    }
  }
  if (least() || point.exchanged() >= 2 || deals_matrices(point) || layers_share_buckets(states)) {
    for (StateCosts& c : states) {
      c.transfers = {};
    }
  }
  return states;
}

}  // namespace stepcast::planner
