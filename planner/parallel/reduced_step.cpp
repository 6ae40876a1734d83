#include "planner/parallel/reduced_step.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "core/error.h"
#include "simulator/reports/memory_ledger.h"
#include "workloads/build_graph.h"
#include "workloads/transformer_shape.h"

namespace stepcast::planner {
namespace {

// Five stages of 1, 1, 2, 1, 1 layers: the first, two in the middle one layer apart, the last.
constexpr std::int32_t kStages = 5;
constexpr std::int64_t kLayers = 6;
// The first, one in the middle, the last, all of as many layers.
constexpr std::int32_t kEqualStages = 3;
/// A layer that fills more buckets shares hardly any with the next: of a layer's matrices none is
/// larger than about a third, so each fills a bucket of its own.
constexpr double kBucketsOfALayer = 4;

enum class Part : std::uint8_t {
  kBegin,
  kFirstForward,
  kForward,
  kBackward,
  kWeights,
  kLastBackward,
  kFinish
};

Part part_of(const Segment& segment) {
  const std::string_view name = segment.name;
  if (name.starts_with("forward_first")) {
    return Part::kFirstForward;
  }
  if (name.starts_with("forward")) {
    return Part::kForward;
  }
  if (name.starts_with("backward_last") || name.starts_with("weights_last")) {
    return Part::kLastBackward;
  }
  if (name.starts_with("weights")) {
    return Part::kWeights;
  }
  if (name.starts_with("backward")) {
    return Part::kBackward;
  }
  return name == "begin" ? Part::kBegin : Part::kFinish;
}

/// Each field of `one` and `two`, chunks one layer apart, as a line.
template <class T, std::size_t N>
void to_lines(T& one, const T& two, const std::array<Line T::*, N>& fields) {
  for (const auto field : fields) {
    Line& line = one.*field;
    line.layer = (two.*field).base - line.base;
    line.base -= line.layer;
  }
}

/// The same layer under another role.
template <class T, std::size_t N>
void take_layer(T& one, const T& line, const std::array<Line T::*, N>& fields) {
  for (const auto field : fields) {
    (one.*field).layer = (line.*field).layer;
    (one.*field).base -= (line.*field).layer;
  }
}

constexpr std::array kPassFields{&PassCosts::forward,
                                 &PassCosts::backward,
                                 &PassCosts::weights,
                                 &PassCosts::forward_ops,
                                 &PassCosts::backward_ops,
                                 &PassCosts::weights_ops,
                                 &PassCosts::kept,
                                 &PassCosts::kept_to_weights,
                                 &PassCosts::gradients_kept,
                                 &PassCosts::forward_only,
                                 &PassCosts::backward_only,
                                 &PassCosts::weights_only,
                                 &PassCosts::beside,
                                 &PassCosts::forward_temporaries,
                                 &PassCosts::backward_temporaries,
                                 &PassCosts::weights_temporaries};
constexpr std::array kStateFields{
    &StateCosts::parameters,  &StateCosts::gradients, &StateCosts::optimizer, &StateCosts::buffers,
    &StateCosts::temporaries, &StateCosts::begin,     &StateCosts::first,     &StateCosts::exchange,
    &StateCosts::after_ends,  &StateCosts::update,    &StateCosts::ops};

/// Costs of stages {first, middle, middle + a layer, last} or {whole, whole + a layer}, by role.
template <class T, std::size_t N>
ByRole<T> by_role(std::vector<T> stages, const std::array<Line T::*, N>& fields) {
  ByRole<T> role;
  if (stages.size() == 2) {
    to_lines(stages[0], stages[1], fields);
    role.fill(stages[0]);
    return role;
  }
  to_lines(stages[1], stages[2], fields);
  take_layer(stages[0], stages[1], fields);
  take_layer(stages[3], stages[1], fields);
  role[static_cast<std::size_t>(ChunkRole::kMiddle)] = stages[1];
  role[static_cast<std::size_t>(ChunkRole::kFirst)] = stages[0];
  role[static_cast<std::size_t>(ChunkRole::kLast)] = stages[3];
  return role;
}

/// Fabric levels on which the members of a group lie apart.
std::uint32_t levels_of(const models::GroupShape& shape) {
  std::uint32_t levels = 0;
  std::int64_t inside = 1;
  for (std::size_t i = 0; i < shape.members.size(); ++i) {
    levels |= shape.members[i] > inside ? 1U << i : 0U;
    inside = std::max(inside, shape.members[i]);
  }
  return levels;
}

/// What a layer without experts adds, into lines of a model that has both.
template <class T, std::size_t N>
void take_dense(ByRole<T>& all, const ByRole<T>& dense, const std::array<Line T::*, N>& fields) {
  for (std::size_t role = 0; role < kChunkRoles; ++role) {
    for (const auto field : fields) {
      (all[role].*field).dense = (dense[role].*field).layer;
    }
  }
}

/// The fields of a part that is done once for every micro-batch.
struct PassFields {
  Line PassCosts::*seconds;
  Line PassCosts::*ops;
  Line PassCosts::*temporaries;
  std::uint8_t touches;  ///< as a bit
};

std::optional<PassFields> fields_of(Part part) {
  switch (part) {
    case Part::kForward:
      return PassFields{&PassCosts::forward, &PassCosts::forward_ops,
                        &PassCosts::forward_temporaries, 1};
    case Part::kBackward:
      return PassFields{&PassCosts::backward, &PassCosts::backward_ops,
                        &PassCosts::backward_temporaries, 2};
    case Part::kWeights:
      return PassFields{&PassCosts::weights, &PassCosts::weights_ops,
                        &PassCosts::weights_temporaries, 4};
    default:
      return std::nullopt;
  }
}

/// Where the bytes of a micro-batch's tensor count, by the passes that touch it.
Line& lifetime(PassCosts& costs, std::uint8_t touched) {
  switch (touched) {
    case 1:
      return costs.forward_only;
    case 2:
      return costs.backward_only;
    case 3:
      return costs.kept;
    case 4:
      return costs.weights_only;
    case 6:
      return costs.gradients_kept;
    default:
      return costs.kept_to_weights;
  }
}

bool gathers_first(const Program& program) {
  return std::any_of(program.segments.begin(), program.segments.end(),
                     [](const Segment& s) { return part_of(s) == Part::kFirstForward; });
}

bool symmetric(const Op& op) {
  return is_collective(op.kind) && op.kind != OpKind::kSend && op.kind != OpKind::kRecv;
}

}  // namespace

/// A pipeline stage of the reduced graph.
struct ReducedStep::Stage {
  std::shared_ptr<const ExecutionGraph> graph;
  std::int32_t index = 0;
  [[nodiscard]] const Program& program() const {
    return graph->programs[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int32_t rank() const { return index * graph->mesh.stride(Axis::kPipeline); }
};

ReducedStep::ReducedStep(const Job& job, const models::CostModel& model, Clock clock)
    : job_(job), model_(model), clock_(clock), memo_(model) {
  STEPCAST_CHECK(job.workload.transformer() != nullptr, "'{}' is no transformer",
                 job.workload.name);
  if (job.phase != JobPhase::kTrain) {
    throw InputError("phase", "plans are searched for training steps; use train");
  }
  // Layers are told apart by kind, not by place: the reduced job has those with experts only.
  auto& layers = std::get<TransformerWorkload>(job_.workload.model);
  if (layers.moe) {
    dense_layers_ = layers.moe->first_dense_layers;
    layers.moe->first_dense_layers = 0;
  }
  dispatch_ = model.host().dispatch.base();
  slowdown_ = model.compute_slowdown();
}

bool ReducedStep::passes_use_data(const PlanPoint& point) const {
  // Where context ranks lie decides how attention works over them.
  const bool context_apart = point.context > 1 && job_.parallel.order[1] != Axis::kContext;
  return point.replicas() > 1 && (point.zero >= 2 || point.expert > 1 || context_apart);
}

bool ReducedStep::states_use_chunks(const PlanPoint& point,
                                    const ByRole<StateCosts>& states) const {
  return point.virtual_stages > 1 && point.replicas() > 1 && layers_share_buckets(states);
}

bool ReducedStep::passes_use_order(const PlanPoint& point) const {
  return job_.parallel.overlap.data && passes_use_data(point);
}

/// Do buckets hold parameters of several layers?
bool ReducedStep::layers_share_buckets(const ByRole<StateCosts>& states) const {
  const double layer = states.back().gradients.layer > 0 ? states.back().gradients.layer
                                                         : states.front().gradients.layer;
  return layer < kBucketsOfALayer * job_.parallel.bucket.base();
}

bool ReducedStep::states_use_passes() const { return job_.parallel.overlap.data; }

/// What follows from the real mesh: how attention over several ranks works, and how many replicas
/// lie inside the level that ZeRO shards in.
void ReducedStep::fit_to_mesh(const PlanPoint& point, Job& reduced) const {
  const workloads::TransformerShape real = workloads::transformer_shape(applied(job_, point));
  reduced.parallel.context_algorithm = real.algorithm;
  if (point.shard_level != 0) {
    const Parallel& p = reduced.parallel;
    System& system = reduced.system;
    const std::int64_t replicas = real.shards / real.context;
    system.fabric.resize(2);
    system.fabric[0].size = replicas * p.mesh().stride(Axis::kData);
    system.fabric[1].size = p.data / replicas;
    reduced.parallel.zero_level = system.fabric[0].name;
  }
}

std::vector<ReducedStep::Stage> ReducedStep::stages_of(const PlanPoint& point, std::int32_t stages,
                                                       std::int64_t layers) const {
  PlanPoint reduced = point;
  reduced.pipeline = stages;
  reduced.virtual_stages = 1;
  if (reduced.schedule != ScheduleKind::kZbH1) {
    reduced.schedule = ScheduleKind::kOneFOneB;
  }
  Job job = applied(job_, reduced);
  if (reduced.context > 1 || reduced.shard_level != 0) {
    fit_to_mesh(point, job);
  }
  // One micro-batch, or two of several: with more than one, sharded gradients need another buffer.
  const std::int64_t microbatches =
      std::min<std::int64_t>(job.microbatches(), passes_use_data(point) ? 2 : 1);
  job.batch.global = job.batch.micro * job.parallel.data * microbatches;
  std::get<TransformerWorkload>(job.workload.model).layers = layers;
  const auto graph = std::make_shared<const ExecutionGraph>(workloads::build_graph(job));
  std::vector<Stage> told_apart{{graph, 0}};
  for (const std::int32_t stage : {1, 2, kStages - 1}) {
    if (stage < stages) {
      told_apart.push_back({graph, stage});
    }
  }
  return told_apart;
}

/// The group a communicator has in the real mesh, seen from the stage.
std::vector<std::int32_t> ReducedStep::real_ranks(const Stage& stage, const PlanPoint& point,
                                                  std::int32_t communicator) const {
  const Mesh& from = stage.graph->mesh;
  const Mesh to = mesh_of(point);
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

/// Ranks of a stage have equal programs, so they send alike.
double ReducedStep::exchange(const Stage& stage, const PlanPoint& point, const Op& op) const {
  const std::vector<std::int32_t> ranks = real_ranks(stage, point, op.communicator);
  const Exchange& exchange = stage.program().exchanges.at(static_cast<std::size_t>(op.detail));
  STEPCAST_CHECK(exchange.send_elements.size() == ranks.size(),
                 "an exchange of {} parts for {} ranks", exchange.send_elements.size(),
                 ranks.size());
  const double bytes = bits_per_element(op.format, std::int64_t{1} << 20) / 8;
  std::vector<double> send;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    for (const double e : exchange.sent_by(i)) {
      send.push_back(e * bytes);
    }
  }
  double longest = 0;
  for (const Seconds end : model_.all_to_all_v(send, ranks, op.format).ends) {
    longest = std::max(longest, end.base());
  }
  return longest;
}

ReducedStep::Hop ReducedStep::hop(const Op& message, const PlanPoint& point,
                                  std::int32_t crossing) const {
  const std::int32_t stride = mesh_of(point).stride(Axis::kPipeline);
  const bool least = clock_ == Clock::kLeast && job_.parallel.overlap.pipeline;
  const std::int32_t next = (crossing + 1) % point.pipeline;
  const std::array<std::int32_t, 2> ranks{std::min(crossing, next) * stride,
                                          std::max(crossing, next) * stride};
  const models::GroupShape pair = models::group_shape(model_.system(), ranks, point.devices());
  return {least ? 0 : model_.collective(message, pair).time.base(), levels_of(pair)};
}

/// Seconds by op template; only of the segments asked for.
std::vector<double> ReducedStep::price(const Stage& stage, const PlanPoint& point, bool passes) {
  const Program& program = stage.program();
  std::vector<double> seconds(program.ops.size(), 0.0);
  std::map<std::int32_t, models::GroupShape> groups;
  const bool all = !passes && (states_use_passes() || gathers_first(program));
  for (const Segment& segment : program.segments) {
    const bool is_pass = fields_of(part_of(segment)).has_value();
    if (is_pass != passes && !all) {
      continue;
    }
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      if (!is_collective(op.kind)) {
        seconds[o] = memo_.kernel(program, op).time.base();
      } else if (symmetric(op) && op.communicator >= 0) {
        auto group = groups.find(op.communicator);
        if (group == groups.end()) {
          group = groups
                      .emplace(op.communicator,
                               models::group_shape(model_.system(),
                                                   real_ranks(stage, point, op.communicator),
                                                   point.devices()))
                      .first;
        }
        seconds[o] = op.kind == OpKind::kAllToAllV
                         ? exchange(stage, point, op)
                         : model_.collective(op, group->second).time.base();
        levels_ |= levels_of(group->second);
      }
    }
  }
  return seconds;
}

/// Seconds of the passes. Gathers and reductions beside them can hold up the next pass: then it is
/// what a pass takes once they follow one another, forward and backward in turn or, in GPipe, each
/// after its like.
void ReducedStep::time_passes(const Program& program, std::span<const double> seconds,
                              ScheduleKind schedule, PassCosts& costs) const {
  const bool held_up = job_.parallel.overlap.data && clock_ == Clock::kUsual;
  constexpr int kRounds = 4;
  RankWalk following(program, seconds, dispatch_, slowdown_, clock_);
  const auto time = [&](const Segment& segment, const PassFields& fields) {
    RankWalk alone(program, seconds, dispatch_, slowdown_, clock_);
    RankWalk& walk = held_up ? following : alone;
    const double begin = walk.now();
    walk.run(segment);
    (costs.*fields.seconds).base = walk.now() - begin;
  };
  const bool by_kind = schedule == ScheduleKind::kGpipe;
  for (int outer = 0; outer < (held_up && !by_kind ? kRounds : 1); ++outer) {
    for (const Segment& segment : program.segments) {
      const auto fields = fields_of(part_of(segment));
      for (int inner = 0; fields && inner < (held_up && by_kind ? kRounds : 1); ++inner) {
        time(segment, *fields);
      }
    }
  }
}

PassCosts ReducedStep::pass_costs(const Stage& stage, const PlanPoint& point) {
  const Program& program = stage.program();
  const std::vector<double> seconds = price(stage, point, true);
  PassCosts costs;
  time_passes(program, seconds, point.schedule, costs);
  std::vector<std::uint8_t> touched(program.tensors.size(), 0);
  for (const Segment& segment : program.segments) {
    const auto fields = fields_of(part_of(segment));
    if (!fields) {
      continue;
    }
    (costs.*fields->ops).base = segment.op_count;
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const bool own = program.streams[program.ops[o].stream] == "data";
      costs.beside.base += own ? seconds[o] : 0;
    }
    std::vector<char> seen(program.tensors.size(), 0);
    for (const Op& op : program.ops_of(segment)) {
      const TensorId* first = program.operands.data() + op.first_operand;
      for (const TensorId* id = first; id != first + op.inputs + op.outputs; ++id) {
        const Tensor& t = program.tensors[*id];
        touched[*id] |= fields->touches;
        if (t.role == TensorRole::kActivation && !t.per_microbatch && seen[*id] == 0) {
          seen[*id] = 1;
          (costs.*fields->temporaries).base += t.bytes().base();
        }
      }
    }
  }
  for (std::size_t id = 0; id < touched.size(); ++id) {
    const Tensor& t = program.tensors[id];
    if (t.per_microbatch && touched[id] != 0) {
      lifetime(costs, touched[id]).base += t.bytes().base();
    }
  }
  return costs;
}

StateCosts ReducedStep::state_costs(const Stage& stage, const PlanPoint& point) {
  const Program& program = stage.program();
  std::vector<double> seconds = price(stage, point, false);
  for (std::size_t o = 0; hidden_ && o < seconds.size(); ++o) {
    seconds[o] = program.ops[o].stream == 0 ? seconds[o] : 0;
  }
  StateCosts costs;
  const MemoryUse use = memory_use(program);
  costs.parameters.base = use.parameters.base();
  costs.gradients.base = use.gradients.base();
  costs.optimizer.base = use.optimizer.base();
  // The reduced pipeline has more stages than one of two: several of them have one place.
  const Bytes communicators =
      simulator::communicator_bytes(program, model_.system().device, [&](std::int32_t c) {
        const std::vector<std::int32_t> ranks = real_ranks(stage, point, c);
        return std::set<std::int32_t>(ranks.begin(), ranks.end()).size();
      });
  costs.buffers.base = (use.buffers + communicators).base();
  for (const Segment& segment : program.segments) {
    const Part part = part_of(segment);
    if (gathers_first(program) && (part == Part::kFirstForward || part == Part::kForward)) {
      RankWalk walk(program, seconds, dispatch_, slowdown_, clock_);
      walk.run(segment);
      costs.first.base += part == Part::kFirstForward ? walk.now() : -walk.now();
    }
  }
  RankWalk finish(program, seconds, dispatch_, slowdown_, clock_);
  double usual = 0;  // of the backward pass that the exchange runs beside
  if (states_use_passes()) {
    for (const Segment& segment : program.segments) {
      const Part part = part_of(segment);
      if (part == Part::kBackward || part == Part::kWeights) {  // the later one
        RankWalk walk(program, seconds, dispatch_, slowdown_, clock_);
        walk.run(segment);
        usual = walk.now();
      } else if (part == Part::kLastBackward) {
        finish.run(segment);
      }
    }
    usual = finish.now() > 0 ? usual : 0;
  }
  for (const Segment& segment : program.segments) {
    const Part part = part_of(segment);
    if (part != Part::kBegin && part != Part::kFinish) {
      continue;
    }
    costs.ops.base += segment.op_count;
    double temporaries = 0;
    std::vector<char> seen(program.tensors.size(), 0);
    for (const Op& op : program.ops_of(segment)) {
      const TensorId* first = program.operands.data() + op.first_operand;
      for (const TensorId* id = first; id != first + op.inputs + op.outputs; ++id) {
        const Tensor& t = program.tensors[*id];
        if (t.role == TensorRole::kActivation && !t.per_microbatch && seen[*id] == 0) {
          seen[*id] = 1;
          temporaries += t.bytes().base();
        }
      }
    }
    costs.temporaries.base = std::max(costs.temporaries.base, temporaries);
    if (part == Part::kBegin) {
      RankWalk walk(program, seconds, dispatch_, slowdown_, clock_);
      walk.run(segment);
      costs.begin.base = clock_ == Clock::kLeast ? walk.now() : walk.drained();
      continue;
    }
    double met = -1;  // the clock at the first op that waits for the other end
    Segment piece{segment.name, segment.first_op, 0};
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      const bool ends =
          symmetric(op) && op.communicator >= 0 &&
          stage.graph->communicators[static_cast<std::size_t>(op.communicator)].name == "embedding";
      if (ends && met < 0) {
        finish.run(piece);
        met = finish.now();
        piece = {segment.name, o, 0};
      }
      ++piece.op_count;
    }
    finish.run(piece);
    const double update = finish.reached(Phase::kOptimizer);
    const double end = hidden_ ? finish.now() : finish.drained();
    const double exchanged = update < 0 ? end : update;
    costs.meets_ends = met >= 0;
    costs.exchange.base = (met >= 0 ? met : exchanged) - usual;
    if (hidden_) {
      costs.exchange = costs.after_ends = costs.first = {};
    }
    costs.after_ends.base = met >= 0 ? exchanged - met : 0;
    costs.update.base = end - exchanged;
  }
  return costs;
}

/// Costs of stages of `fewer` and of `fewer + more` layers each, as lines.
template <class T, std::size_t N>
ByRole<T> ReducedStep::lines(const PlanPoint& key, const PlanPoint& point, std::int64_t fewer,
                             std::int64_t more,
                             T (ReducedStep::*costs)(const Stage&, const PlanPoint&),
                             const std::array<Line T::*, N>& fields) {
  const bool whole = point.pipeline == 1;
  const std::int32_t parts = whole ? 1 : kEqualStages;
  std::vector<T> low;
  for (const Stage& stage : stages_of(key, parts, parts * fewer)) {
    low.push_back((this->*costs)(stage, point));
  }
  std::size_t i = 0;
  for (const Stage& stage : stages_of(key, parts, parts * (fewer + more))) {
    const T high = (this->*costs)(stage, point);
    for (const auto field : fields) {
      Line& line = low[i].*field;
      line.layer = ((high.*field).base - line.base) / static_cast<double>(more);
      line.base -= line.layer * static_cast<double>(fewer);
    }
    ++i;
  }
  ByRole<T> role;
  role.fill(low.front());
  if (!whole) {
    role[static_cast<std::size_t>(ChunkRole::kMiddle)] = low[1];
    role[static_cast<std::size_t>(ChunkRole::kLast)] = low.back();
  }
  return role;
}

/// Most layers of a chunk.
std::int64_t ReducedStep::most_layers(const PlanPoint& point) const {
  const std::int64_t chunks = std::int64_t{point.pipeline} * point.virtual_stages;
  return (job_.workload.transformer()->layers + chunks - 1) / chunks;
}

Passes ReducedStep::passes_of(const PlanPoint& point) {
  PlanPoint key = point;
  if (point.zero < 2 || !passes_use_data(point)) {
    key.zero = 0;
    key.shard_level = 0;
  }
  key.data = passes_use_data(point) ? point.data : 1;
  Passes passes;
  levels_ = 0;
  // Buffers that layers take in turn hold a pass up only once there are more layers than buffers.
  const bool held_up = passes_use_order(point);
  const std::int64_t most = most_layers(point);
  const std::int64_t fewer = held_up ? std::clamp<std::int64_t>(most - 2, 1, 4) : 1;
  const std::int64_t more = held_up ? std::clamp<std::int64_t>(most - fewer, 1, 2) : 1;
  if (point.pipeline == 1 || held_up) {
    passes.role = lines(key, point, fewer, more, &ReducedStep::pass_costs, kPassFields);
  }
  if (point.pipeline == 1) {
    passes.levels = levels_;
    return passes;
  }
  const std::vector<Stage> stages = stages_of(key, kStages, kLayers);
  if (!held_up) {
    std::vector<PassCosts> costs;
    for (const Stage& stage : stages) {
      costs.push_back(pass_costs(stage, point));
    }
    passes.role = by_role(std::move(costs), kPassFields);
  }
  passes.levels = levels_;
  const Program& middle = stages[1].program();
  for (const Segment& segment : middle.segments) {
    for (const Op& op : middle.ops_of(segment)) {
      if (op.kind == OpKind::kRecv) {
        (part_of(segment) == Part::kForward ? passes.forward_message : passes.backward_message) =
            op;
      }
    }
  }
  return passes;
}

ByRole<StateCosts> ReducedStep::states_of(const PlanPoint& point) {
  PlanPoint key = point;
  if (!states_use_passes()) {  // whatever the micro-batch: of few, only all their bytes matter
    const std::int64_t samples = job_.batch.global / point.data;
    key.micro = static_cast<std::int32_t>(samples);
    const bool sharded = passes_use_data(point) && point.micro < samples;
    for (std::int32_t several = 2; sharded && several <= samples; ++several) {
      if (samples % several == 0) {
        key.micro = static_cast<std::int32_t>(samples / several);
        break;
      }
    }
    key.recompute = RecomputeKind::kNone;
    key.schedule = ScheduleKind::kOneFOneB;
  }
  ByRole<StateCosts> costs;
  if (point.pipeline == 1) {
    costs = lines(key, point, 1, 1, &ReducedStep::state_costs, kStateFields);
  } else {
    std::vector<StateCosts> stages;
    for (const Stage& stage : stages_of(key, kStages, kLayers)) {
      stages.push_back(state_costs(stage, point));
    }
    costs = by_role(std::move(stages), kStateFields);
  }
  // Then one more layer is no measure of the exchange: it is priced at the numbers of layers that
  // chunks have.
  if (point.replicas() > 1 && (layers_share_buckets(costs) || states_use_passes())) {
    const std::int64_t fewer = std::max<std::int64_t>(most_layers(point) - 1, 1);
    costs = lines(key, point, fewer, 1, &ReducedStep::state_costs, kStateFields);
  }
  return costs;
}

template <class Make>
auto ReducedStep::without_experts(const Make& make) {
  auto& model = std::get<TransformerWorkload>(job_.workload.model);
  const auto experts = std::move(model.moe);
  model.moe.reset();
  auto made = make();
  model.moe = experts;
  return made;
}

Passes ReducedStep::passes(const PlanPoint& point) {
  Passes passes = passes_of(point);
  if (dense_layers_ > 0) {
    PlanPoint dense = point;
    dense.expert = 1;
    take_dense(passes.role, without_experts([&] { return passes_of(dense); }).role, kPassFields);
  }
  return passes;
}

ByRole<StateCosts> ReducedStep::states(const PlanPoint& point, bool hidden) {
  // Chunks exchange while others of their stage still work, and what layers with and without
  // experts leave exposed is no sum: then it may be hidden in full.
  hidden_ = hidden || (clock_ == Clock::kLeast && states_use_passes() &&
                       (point.virtual_stages > 1 || dense_layers_ > 0));
  ByRole<StateCosts> states = states_of(point);
  if (dense_layers_ > 0) {
    PlanPoint dense = point;
    dense.expert = 1;
    take_dense(states, without_experts([&] { return states_of(dense); }), kStateFields);
  }
  return states;
}

}  // namespace stepcast::planner
