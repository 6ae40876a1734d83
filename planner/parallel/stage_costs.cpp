#include "planner/parallel/stage_costs.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>

#include "core/error.h"
#include "core/graph/memory_use.h"
#include "core/graph/op_traits.h"
#include "core/graph/temporaries.h"
#include "simulator/host_issue.h"
#include "simulator/reports/framework_memory.h"
#include "simulator/reports/memory_ledger.h"
#include "simulator/side_by_side.h"

namespace stepcast::planner {
namespace {

/// The fields of a part that is done once for every micro-batch.
struct PassFields {
  Line PassCosts::*seconds;
  Line PassCosts::*ops;
  std::uint8_t touches;  ///< as a bit
  Line PassCosts::*exposed = nullptr;
};

std::optional<PassFields> fields_of(Part part) {
  switch (part) {
    case Part::kForward:
      return PassFields{&PassCosts::forward, &PassCosts::forward_ops, 1,
                        &PassCosts::forward_exposed};
    case Part::kBackward:
      return PassFields{&PassCosts::backward, &PassCosts::backward_ops, 2,
                        &PassCosts::backward_exposed};
    case Part::kWeights:
      return PassFields{&PassCosts::weights, &PassCosts::weights_ops, 4};
    default:
      return std::nullopt;
  }
}

/// Line that the bytes of a micro-batch's tensor count in, by the passes that touch it.
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

bool symmetric(const Op& op) { return is_collective(op.kind) && !is_point_to_point(op.kind); }

/// True for a collective over replicas on a stream of its own.
bool over_replicas(const ReducedStage& stage, const Op& op) {
  return op.stream != 0 && op.communicator >= 0 &&
         stage.graph->communicators[static_cast<std::size_t>(op.communicator)].role ==
             CommunicatorRole::kReplicas;
}

/// Seconds of the exchange of gradients on a stream of its own, from the last backward pass on.
double transfers_of(const ReducedStage& stage, std::span<const double> seconds) {
  const Program& program = stage.program();
  std::vector<double> by_stream(program.streams.size(), 0.0);
  for (const Segment& segment : program.segments) {
    const Part part = part_of(segment);
    if (part != Part::kLastBackward && part != Part::kFinish) {
      continue;
    }
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      if (op.phase == Phase::kOptimizer) {
        break;
      }
      by_stream[op.stream] += over_replicas(stage, op) ? seconds[o] : 0;
    }
  }
  return by_stream.empty() ? 0 : *std::max_element(by_stream.begin(), by_stream.end());
}

/// Runs the segment; the clock at its first op that waits for the pipeline's other end, -1 where
/// there is none.
double run_noting_ends(RankTimeline& walk, const ReducedStage& stage, const Segment& segment) {
  double met = -1;
  Segment piece{segment.name, segment.first_op, 0};
  for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
    const Op& op = stage.program().ops[o];
    const bool ends = symmetric(op) && op.communicator >= 0 &&
                      stage.graph->communicators[static_cast<std::size_t>(op.communicator)].role ==
                          CommunicatorRole::kPipelineEnds;
    if (ends && met < 0) {
      walk.run(piece);
      met = walk.now();
      piece = {segment.name, o, 0};
    }
    ++piece.op_count;
  }
  walk.run(piece);
  return met;
}

/// The host's time for an op, in ops that it issues; `seconds` is its time by op
/// (simulator::issue_seconds), empty where all take HostCost::issue.
double issues(std::uint32_t op, std::span<const double> seconds, const models::HostCost& host) {
  return seconds.empty() || !(host.issue.base() > 0) ? 1 : seconds[op] / host.issue.base();
}

}  // namespace

std::uint32_t levels_of(const GroupShape& shape) {
  std::uint32_t levels = 0;
  std::int64_t inside = 1;
  for (std::size_t i = 0; i < shape.members.size(); ++i) {
    levels |= shape.members[i] > inside ? 1U << i : 0U;
    inside = std::max(inside, shape.members[i]);
  }
  return levels;
}

void share_temporaries(StagePasses& stage, const StagePasses& middle) {
  std::vector<Temporary> all = stage.temporaries;
  for (const Temporary& t : middle.temporaries) {
    auto at = std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.name == t.name; });
    at = at == all.end() ? all.insert(at, {t.name, t.bytes, {}}) : at;
    for (std::size_t pass = 0; pass < t.kinds.size(); ++pass) {
      at->kinds[pass] |= t.kinds[pass] & ~kOfEnds;
    }
  }
  std::array<double, kOfEnds>& most = stage.costs.temporaries;
  for (std::size_t present = 0; present < most.size(); ++present) {
    std::array<double, 3> of_pass{};
    for (std::size_t pass = 0; pass < of_pass.size(); ++pass) {
      double& live = of_pass[pass] = stage.most_live[pass][kMostBlockKinds];
      for (std::size_t kind = 0; kind < kMostBlockKinds; ++kind) {
        if ((present >> kind & 1) != 0) {
          live = std::max({live, stage.most_live[pass][kind], middle.most_live[pass][kind]});
        }
      }
    }
    for (const Temporary& t : all) {
      for (std::size_t pass = 0; pass < of_pass.size(); ++pass) {
        of_pass[pass] += (t.kinds[pass] & (present | kOfEnds)) != 0 ? t.bytes : 0;
      }
    }
    most[present] = *std::max_element(of_pass.begin(), of_pass.end());
  }
}

StageCosts::StageCosts(const models::CostModel& model, CostBasis clock, bool overlapped,
                       bool several_kinds)
    : clock_(clock),
      overlapped_(overlapped),
      several_kinds_(several_kinds),
      pricer_(std::make_shared<simulator::Pricer>(model)),
      host_(model.host()),
      dispatch_(model.host().dispatch.base()),
      slowdown_(model.compute_slowdown()) {}

/// Seconds by op template; only of the segments asked for.
std::vector<double> StageCosts::price(const ReducedStage& stage, const Mesh& mesh, bool passes) {
  const Program& program = stage.program();
  std::vector<double> seconds(program.ops.size(), 0.0);
  std::map<std::int32_t, simulator::Pricer::GroupOfRanks> groups;
  const bool all = !passes && (overlapped_ || gathers_first(program));
  for (const Segment& segment : program.segments) {
    const bool is_pass = fields_of(part_of(segment)).has_value();
    if (is_pass != passes && !all) {
      continue;
    }
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      if (!is_collective(op.kind)) {
        seconds[o] = pricer_->kernel(program, op).time.base();
      } else if (symmetric(op) && op.communicator >= 0) {
        auto group = groups.find(op.communicator);
        if (group == groups.end()) {
          group =
              groups
                  .emplace(op.communicator,
                           pricer_->group(real_ranks(stage, mesh, op.communicator), mesh.size()))
                  .first;
        }
        seconds[o] = pricer_->collective_of_equals(program, op, group->second);
        levels_ |= levels_of(group->second.shape);
      }
    }
  }
  if (passes || clock_ == CostBasis::kUsual) {  // exchanges of states may stand elsewhere in them
    simulator::slow_beside_exchanges(program, pricer_->model().system(), seconds);
  }
  return seconds;
}

/// From seconds by layer + 1 (RankTimeline::run), in the order of the pass or against it. The last
/// two of layers alike show how it goes on. To the least clock the first of a pass may find nothing
/// to wait for, and those after other kinds may wait for these: it takes the least of the others.
Line StageCosts::line_of(std::span<const double> by_layer, const LayerKinds& kinds,
                         bool ascending) const {
  const std::size_t layers = kinds.of_layer.size();
  ByKind<std::vector<double>> seconds;
  std::size_t begins = kMostBlockKinds;  // kind of the first
  for (std::size_t i = 0; i < layers; ++i) {
    const std::size_t layer = ascending ? i : layers - 1 - i;
    if (by_layer[layer + 1] != 0) {  // else of another stage
      const std::size_t kind = kinds.of_layer[layer];
      begins = begins == kMostBlockKinds ? kind : begins;
      seconds[kind].push_back(by_layer[layer + 1]);
    }
  }
  const bool least = clock_ == CostBasis::kLowerBound;
  Line line{by_layer[0], {}};
  for (std::size_t kind = 0; kind < kMostBlockKinds; ++kind) {
    const std::vector<double>& of = seconds[kind];
    if (of.size() < 2) {
      line.layer[kind] = of.empty() ? 0 : of.front();
    } else if (least) {
      const bool first = kind == begins;
      line.layer[kind] = *std::min_element(of.begin() + (first ? 1 : 0), of.end());
      line.base += first ? of.front() - line.layer[kind] : 0;
    } else {
      line.layer[kind] = (of.back() + *(of.end() - (of.size() > 2 ? 2 : 1))) / 2;
      line.base += std::accumulate(of.begin(), of.end(), 0.0) -
                   line.layer[kind] * static_cast<double>(of.size());
    }
  }
  return line;
}

/// Seconds of the passes. Gathers and reductions that overlap with them can delay the next pass:
/// then it is what a pass takes once they follow one another, forward and backward in turn or, in
/// GPipe, each after its like.
void StageCosts::time_passes(const Program& program, std::span<const double> seconds,
                             ScheduleKind schedule, const LayerKinds& kinds,
                             PassCosts& costs) const {
  const bool held_up = overlapped_ && clock_ == CostBasis::kUsual;
  constexpr int kRounds = 4;
  std::vector<double> by_layer(kinds.of_layer.size() + 1);
  const auto run = [&](RankTimeline& walk, const Segment& segment) {
    std::fill(by_layer.begin(), by_layer.end(), 0.0);
    walk.run(segment, by_layer);
    return line_of(by_layer, kinds, part_of(segment) == Part::kForward);
  };
  RankTimeline following = walk_of(program, seconds);
  const bool exposes = clock_ == CostBasis::kLowerBound && several_kinds_;
  std::vector<double> computed(exposes ? seconds.begin() : seconds.end(), seconds.end());
  for (std::size_t o = 0; o < computed.size(); ++o) {
    computed[o] = program.ops[o].stream == 0 ? computed[o] : 0;
  }
  const auto expose = [&](const Segment& segment, const PassFields& fields) {
    RankTimeline walk = walk_of(program, computed);
    const Line of_compute = run(walk, segment);
    Line& exposed = costs.*fields.exposed = costs.*fields.seconds;
    exposed.base -= of_compute.base;
    for (std::size_t kind = 0; kind < kMostBlockKinds; ++kind) {
      exposed.layer[kind] -= of_compute.layer[kind];
    }
  };
  const bool by_kind = traits_of(schedule).ahead == 0;
  for (int outer = 0; outer < (held_up && !by_kind ? kRounds : 1); ++outer) {
    for (const Segment& segment : program.segments) {
      const auto fields = fields_of(part_of(segment));
      for (int inner = 0; fields && inner < (held_up && by_kind ? kRounds : 1); ++inner) {
        RankTimeline alone = walk_of(program, seconds);
        costs.*fields->seconds = run(held_up ? following : alone, segment);
        if (exposes && fields->exposed != nullptr) {
          expose(segment, *fields);
        }
      }
    }
  }
}

StagePasses StageCosts::passes(const ReducedStage& stage, const Mesh& mesh, ScheduleKind schedule,
                               const LayerKinds& kinds) {
  const Program& program = stage.program();
  const std::vector<double> seconds = price(stage, mesh, true);
  StagePasses of_stage;
  PassCosts& costs = of_stage.costs;
  time_passes(program, seconds, schedule, kinds, costs);
  const std::vector<double> issued = simulator::issue_seconds(program, host_);
  /// A tensor belongs to the layer that has it last in the first pass that has it. Gradients
  /// between layers are of each micro-batch only where weight gradients wait: others are messages.
  struct Life {
    std::uint8_t touched = 0;
    std::int16_t layer = kNoLayer;
    std::array<std::size_t, 3> kinds{};  ///< as Temporary::kinds
  };
  std::vector<Life> lives(program.tensors.size());
  const Temporaries temporaries(program);
  for (const Segment& segment : program.segments) {
    const auto fields = fields_of(part_of(segment));
    if (!fields) {
      continue;
    }
    const auto pass = static_cast<std::size_t>(std::countr_zero(fields->touches));
    const std::vector<double> live = temporaries.live_by_op(segment);
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      const Op& op = program.ops[o];
      double& most =
          of_stage.most_live[pass][kinds.has(op.layer) ? kinds.of(op.layer) : kMostBlockKinds];
      most = std::max(most, live[o - segment.first_op]);
      const std::size_t kind = kinds.has(op.layer) ? std::size_t{1} << kinds.of(op.layer) : kOfEnds;
      kinds.add(costs.*fields->ops, op.layer, issues(o, issued, host_));
      kinds.add(costs.overlapped, op.layer, over_replicas(stage, op) ? seconds[o] : 0);
      const TensorId* first = program.operands.data() + op.first_operand;
      for (const TensorId* id = first; id != first + op.inputs + op.outputs; ++id) {
        Life& life = lives[*id];
        if ((life.touched & ~fields->touches) == 0) {
          life.layer = fields->touches == 1 || splits_weights(schedule) ? op.layer : kNoLayer;
        }
        life.touched |= fields->touches;
        life.kinds[pass] |= kind;
      }
    }
  }
  for (std::size_t id = 0; id < lives.size(); ++id) {
    const Tensor& t = program.tensors[id];
    if (t.per_microbatch && lives[id].touched != 0) {
      kinds.add(lifetime(costs, lives[id].touched), lives[id].layer, t.bytes().base());
    } else if (temporaries.lives_throughout(static_cast<TensorId>(id)) && lives[id].touched != 0) {
      of_stage.temporaries.push_back({t.name, t.bytes().base(), lives[id].kinds});
    }
  }
  return of_stage;
}

StateCosts StageCosts::states(const ReducedStage& stage, const Mesh& mesh, bool hidden) {
  const Program& program = stage.program();
  std::vector<double> seconds = price(stage, mesh, false);
  StateCosts costs;
  if (hidden) {
    costs.transfers.base = transfers_of(stage, seconds);
    for (std::size_t o = 0; o < seconds.size(); ++o) {
      seconds[o] = program.ops[o].stream == 0 ? seconds[o] : 0;
    }
  }
  const MemoryUse use = memory_use(program);
  costs.parameters.base = use.parameters.base();
  costs.gradients.base = use.gradients.base();
  costs.optimizer.base = use.optimizer.base();
  // The reduced pipeline has more stages than one of two: several of them have one place.
  const Device& device = pricer_->model().system().device;
  const Bytes communicators = simulator::communicator_bytes(program, device, [&](std::int32_t c) {
    std::vector<std::int32_t> ranks = real_ranks(stage, mesh, c);  // ascending
    const auto size =
        static_cast<std::size_t>(std::unique(ranks.begin(), ranks.end()) - ranks.begin());
    if (several_kinds_) {  // asked once for each
      costs.held.emplace_back(
          "communicator." + stage.graph->communicators[static_cast<std::size_t>(c)].name,
          simulator::framework_memory(device, {size}, {}).communicators.base());
    }
    return size;
  });
  costs.buffers.base = (use.buffers + communicators).base();
  for (const Tensor& t : program.tensors) {
    if (several_kinds_ && is_held_buffer(t)) {
      costs.held.emplace_back(t.name, t.bytes().base());
    }
  }
  RankTimeline first = walk_of(program, seconds);  // gathers may be issued before the first pass
  for (const Segment& segment : program.segments) {
    const Part part = part_of(segment);
    if (part == Part::kBegin) {
      first.run(segment);
      costs.begin.base = first.now();
    } else if (part == Part::kFirstForward) {
      first.run(segment);
      costs.first.base += first.now() - costs.begin.base;
    } else if (part == Part::kForward && gathers_first(program)) {
      RankTimeline walk = walk_of(program, seconds);
      walk.run(segment);
      costs.first.base -= walk.now();
    }
  }
  RankTimeline finish = walk_of(program, seconds);
  double usual = 0;  // of the backward pass that the exchange overlaps with
  if (overlapped_) {
    for (const Segment& segment : program.segments) {
      const Part part = part_of(segment);
      if (part == Part::kBackward || part == Part::kWeights) {  // the later one
        RankTimeline walk = walk_of(program, seconds);
        walk.run(segment);
        usual = walk.now();
      } else if (part == Part::kLastBackward) {
        finish.run(segment);
      }
    }
    usual = finish.now() > 0 ? usual : 0;
  }
  const std::vector<double> issued = simulator::issue_seconds(program, host_);
  const Temporaries temporaries(program);
  for (const Segment& segment : program.segments) {
    const Part part = part_of(segment);
    if (part != Part::kBegin && part != Part::kFinish) {
      continue;
    }
    for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
      costs.ops.base += issues(o, issued, host_);
    }
    costs.temporaries.base = std::max(costs.temporaries.base, temporaries.peak_of(segment).base());
    if (part == Part::kBegin) {
      continue;
    }
    const double met = run_noting_ends(finish, stage, segment);
    const double update = finish.reached(Phase::kOptimizer);
    const double end = hidden ? finish.now() : finish.drained();
    const double exchanged = update < 0 ? end : update;
    costs.meets_ends = met >= 0;
    costs.exchange.base = (met >= 0 ? met : exchanged) - usual;
    if (hidden) {
      costs.exchange = costs.after_ends = costs.first = {};
    }
    costs.after_ends.base = met >= 0 ? exchanged - met : 0;
    costs.update.base = end - exchanged;
  }
  return costs;
}

}  // namespace stepcast::planner
