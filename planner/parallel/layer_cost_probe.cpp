#include "planner/parallel/layer_cost_probe.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <string_view>
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
constexpr std::size_t kMostKept = 500;

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

std::size_t layers_of(const StageLayers& stages) {
  return std::accumulate(stages.begin(), stages.end(), std::size_t{0},
                         [](std::size_t sum, const auto& stage) { return sum + stage.size(); });
}

/// Bytes that layers of some kinds take in turn: each buffer as large as where it is largest.
void share_buffers(const std::vector<ByRole<StateCosts>>& of_kind, std::size_t role,
                   StateCosts& costs) {
  const std::size_t all = std::size_t{1} << of_kind.size();
  for (std::size_t present = 2; present < all; ++present) {
    std::map<std::pair<std::string_view, int>, double> largest;  // by name and which of that name
    double grows = 0;
    for (std::size_t kind = 0; kind < of_kind.size(); ++kind) {
      if ((present >> kind & 1) == 0) {
        continue;
      }
      const StateCosts& c = of_kind[kind][role];
      std::map<std::string_view, int> seen;
      double sum = 0;
      for (const auto& [name, bytes] : c.held) {
        double& most = largest[{name, seen[name]++}];
        most = std::max(most, bytes);
        sum += bytes;
      }
      grows = std::max(grows, sum - c.buffers.base);
    }
    costs.buffers_of_kinds[present] =
        std::accumulate(largest.begin(), largest.end(), -grows,
                        [](double sum, const auto& buffer) { return sum + buffer.second; });
  }
  costs.held.clear();
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
LayerCostProbe::GraphKey LayerCostProbe::graph_key(const PlanPoint& key,
                                                   const StageLayers& layers) {
  GraphKey of{key, {}, layers};
  of.point.virtual_stages = 1;
  of.point.embedding_layers = of.point.head_layers = 0;
  of.point.schedule = plain_schedule(splits_weights(key.schedule));
  return of;
}

const std::vector<ReducedStage>& LayerCostProbe::pass_stages(const PlanPoint& key,
                                                             const StageLayers& layers) {
  GraphKey of = graph_key(key, layers);
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
             ->emplace(of, probed_stages(job_, key, layers, passes_use_data(key),
                                         alone ? workloads::build_passes : workloads::build_graph))
             .first;
  }
  return it->second;
}

const std::vector<ReducedStage>& LayerCostProbe::state_stages(const PlanPoint& key,
                                                              const StageLayers& layers) {
  const GraphKey of = graph_key(key, layers);
  if (!state_graphs_->empty() && split_of(state_graphs_->begin()->first.point) != split_of(key)) {
    state_graphs_->clear();
  }
  auto it = state_graphs_->find(of);
  if (it == state_graphs_->end()) {
    const auto kept = std::accumulate(
        state_graphs_->begin(), state_graphs_->end(), std::size_t{0},
        [](std::size_t sum, const auto& graph) { return sum + layers_of(graph.first.layers); });
    if (kept > kMostKept) {
      state_graphs_->clear();
    }
    it = state_graphs_
             ->emplace(
                 of, probed_stages(job_, key, layers, passes_use_data(key), workloads::build_graph))
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
  if (traits_of(p.schedule).ahead > 0 || !order) {
    p.schedule = plain_schedule(splits_weights(p.schedule));
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

/// Gathers and reductions that overlap with passes hold one up only once there are more layers than
/// buffers, and those of the first layer are free to the least clock.
std::int64_t LayerCostProbe::layers_alike(const PlanPoint& point) const {
  if (passes_use_order(point)) {
    const auto kinds = static_cast<std::int64_t>(kinds_.size());
    return std::max<std::int64_t>(std::min(most_layers(point), kMostToldApart) / kinds, 1);
  }
  const bool free = least() && states_use_passes() && point.exchanged() >= 2;
  return !free ? 1 : kinds_.size() == 1 ? kBuffered : kBuffered - 1;
}

Passes LayerCostProbe::passes_of(const PlanPoint& point) {
  const Mesh mesh = mesh_of(job_, point);
  const PlanPoint key = pass_point(point);
  LayerKinds kinds{{}, layers_alike(point)};
  const auto add = [&](std::vector<BlockKind>& stage, std::size_t kind) {
    stage.insert(stage.end(), static_cast<std::size_t>(kinds.alike), kinds_[kind]);
    kinds.of_layer.insert(kinds.of_layer.end(), static_cast<std::size_t>(kinds.alike), kind);
  };
  StageLayers layers(point.pipeline == 1 ? 1 : 3);
  for (std::vector<BlockKind>& stage : layers) {
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (kind == 0 || &stage == &layers[middle_of(layers)]) {
        add(stage, kind);
      }
    }
  }
  const std::vector<ReducedStage>& stages = pass_stages(key, layers);
  const ReducedStage& middle = stages[middle_of(layers)];
  Passes passes;
  costs_.take_levels();
  StagePasses shared = costs_.passes(middle, mesh, point.schedule, kinds);
  share_temporaries(shared, shared);
  const PassCosts& of_middle = shared.costs;
  const auto costs = [&](const ReducedStage& stage) {
    StagePasses own = costs_.passes(stage, mesh, point.schedule, kinds);
    share_temporaries(own, shared);
    return own.costs;
  };
  passes.role.fill(of_middle);
  if (point.pipeline > 1) {
    note_messages(middle.program(), passes);
    const double same_at = least() ? 1 : static_cast<double>(kinds.alike);
    for (const auto& [role, stage] : {std::pair(ChunkRole::kFirst, &stages.front()),
                                      std::pair(ChunkRole::kLast, &stages.back())}) {
      PassCosts& end = passes.role[static_cast<std::size_t>(role)] = costs(*stage);
      for (const auto field : kPassFields) {  // a layer is the same under every role
        Line& line = end.*field;
        line.base += (line.layer[0] - (of_middle.*field).layer[0]) * same_at;
        line.layer = (of_middle.*field).layer;
      }
    }
  }
  if (empty_ends(point)) {
    kinds.of_layer.clear();
    add_ends(pass_stages(key, ends_alone()), passes.role, costs);
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
    key.schedule = plain_schedule(false);
  }
  return key;
}

ByRole<StateCosts> LayerCostProbe::states_of(PlanPoint point, std::size_t kind, bool hidden) {
  const bool experts = has_experts(*job_.workload.transformer(), kinds_[kind]);
  point.expert = experts ? point.expert : 1;
  auto& known = dense_states_[kind];
  if (const auto it = known.find({point, hidden}); it != known.end()) {
    return it->second;
  }
  ByRole<StateCosts> states = states_made(point, kind, hidden);
  if (!experts) {
    known.emplace(std::pair(point, hidden), states);
  }
  return states;
}

ByRole<StateCosts> LayerCostProbe::states_made(const PlanPoint& point, std::size_t kind,
                                               bool hidden) {
  const Mesh mesh = mesh_of(job_, point);
  const PlanPoint key = state_key(point);
  const bool overlapped = has_copies(point) && states_use_passes();
  const bool whole = point.pipeline == 1;
  const auto costs = [&](const StageLayers& layers) {
    std::vector<StateCosts> by_stage;
    for (const ReducedStage& stage : state_stages(key, layers)) {
      by_stage.push_back(costs_.states(stage, mesh, hidden));
    }
    return by_stage;
  };
  const auto lines = [&](std::int64_t count) {
    return lines_of(costs(of_kind(kind, count, whole)), costs(of_kind(kind, count + 1, whole)),
                    static_cast<double>(count));
  };
  // A layer is like the next once there are so many.
  const auto alike_from = [&](std::int64_t count) {
    if (whole) {
      return lines(count);
    }
    StageLayers unequal = of_kind(kind, count, false);
    unequal.insert(unequal.begin() + 2,
                   std::vector(static_cast<std::size_t>(count) + 1, kinds_[kind]));
    return by_role(costs(unequal), static_cast<double>(count));
  };
  // Overlapped with passes, or in shared buckets, one layer more is no measure of the exchange: it
  // is priced at the numbers of layers that chunks have, or at so many that it goes on alike.
  const std::int64_t most = std::max<std::int64_t>(most_layers(point) - 1, 1);
  const bool deals = deals_matrices(point);
  if (overlapped && hidden && !deals) {
    return alike_from(point.exchanged() < 2 ? 1 : std::min(most, kBuffered));
  }
  if (overlapped) {
    const std::int64_t settled = std::min(most, kSettled);
    ByRole<StateCosts> states = lines(settled);
    if (settled < most && exchange_settles(point, states)) {
      catch_up(states);
      return states;
    }
    return settled == most ? states : lines(most);
  }
  if (deals) {
    return lines(most);
  }
  const ByRole<StateCosts> states = alike_from(1);
  return has_copies(point) && layers_share_buckets(states) ? lines(most) : states;
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

std::size_t LayerCostProbe::states_like(std::size_t kind) const {
  const auto alike = [&](const BlockKind& other) { return other.like(kinds_[kind]); };
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
  return with_algorithm(point, [&] { return passes_of(point); });
}

ByRole<StateCosts> LayerCostProbe::states(const PlanPoint& point, bool hidden, bool ends) {
  return with_algorithm(point, [&] { return states_of_kinds(point, hidden, ends); });
}

ByRole<StateCosts> LayerCostProbe::states_of_kinds(const PlanPoint& point, bool hidden, bool ends) {
  hidden = hidden || states_hide_exchange(point);
  ByRole<StateCosts> states = states_of(point, 0, hidden);
  if (ends || empty_ends(point)) {
    const Mesh mesh = mesh_of(job_, point);
    add_ends(state_stages(state_key(point), ends_alone()), states,
             [&](const ReducedStage& stage) { return costs_.states(stage, mesh, hidden); });
  }
  std::vector<ByRole<StateCosts>> of_kind{states};
  for (std::size_t kind = 1; kind < kinds_.size(); ++kind) {
    const std::size_t like = states_like(kind);
    if (like < kind) {
      for (StateCosts& c : states) {
        for (const auto field : kStateFields) {
          (c.*field).layer[kind] = (c.*field).layer[like];
        }
      }
      of_kind.push_back(of_kind[like]);
      continue;
    }
    const ByRole<StateCosts> alike = states_of(point, kind, hidden);
    take_kind(states, alike, kind);
    of_kind.push_back(alike);
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
  for (std::size_t role = 0; role < kChunkRoles; ++role) {
    share_buffers(of_kind, role, states[role]);
  }
  return states;
}

}  // namespace stepcast::planner
