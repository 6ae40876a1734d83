#include "simulator/step_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/graph/execution_order.h"
#include "core/graph/op_traits.h"
#include "models/collectives/collective_form.h"
#include "models/collectives/idle_time.h"
#include "simulator/host_issue.h"
#include "simulator/pricer.h"
#include "simulator/side_by_side.h"

namespace stepcast::simulator {
namespace {

/// Shapes that a pricer of one graph makes room for at first.
constexpr std::size_t kShapes = 64;

/// Prices a graph instance by instance; answers are kept by (program, op) or (program, op, ranks).
class GraphCosts {
 public:
  GraphCosts(const ExecutionGraph& graph, const models::CostModel& model, StepCosts& costs)
      : graph_(graph),
        model_(model),
        pricer_(model, kShapes),
        host_(model.host()),
        costs_(costs),
        kernels_(graph.programs.size()) {
    for (const Program& program : graph.programs) {
      orders_.emplace_back(program, graph.communicators.size());
    }
    idle_time_.resize(graph.programs.size());
  }

  void run() {
    for (std::size_t i = 0; i < costs_.ops.size(); ++i) {
      const Instance& instance = costs_.folding.instances[i];
      OpCosts& row = costs_.ops[i];
      row = kernels(static_cast<std::size_t>(instance.program));
      const Program& program = program_of(i);
      for (std::size_t o = 0; o < program.ops.size(); ++o) {
        if (is_collective(program.ops[o].kind) && program.ops[o].kind != OpKind::kAllToAllV) {
          price_collective(i, o);
        }
      }
    }
    for (std::size_t g = 0; g < costs_.folding.groups.size(); ++g) {
      price_all_to_all_v(costs_.folding.groups[g]);
    }
    const bool holds = model_.system().framework.exchange_multiprocessors > 0;
    for (std::size_t i = 0; holds && i < costs_.ops.size(); ++i) {
      std::vector<std::int64_t>& ticks = costs_.ops[i].ticks;
      std::vector<double> times(ticks.begin(), ticks.end());
      if (slow_beside_exchanges(program_of(i), model_.system(), times)) {
        std::transform(times.begin(), times.end(), ticks.begin(),
                       [](double time) { return std::llround(time); });
      }
    }
  }

 private:
  const Program& program_of(std::size_t instance) const {
    return graph_.programs[static_cast<std::size_t>(costs_.folding.instances[instance].program)];
  }

  void answer(OpCosts& row, const Program& program, std::size_t op, const models::Prediction& p) {
    STEPCAST_CHECK(p.time.base() >= 0, "model '{}' answered {} s", p.model, p.time.base());
    if (p.time > kLongestStep) {
      const Op& what = program.ops[op];
      reject_longer(fmt::format("op {} [{}]", program.name(what), name_of(what.phase)), p.time);
    }
    // Ops that are not done in every step take their share of each.
    const double share = program.share_of_steps(program.ops[op]);
    row.ticks[op] = to_ticks(p.time * share);
    row.log_sigma[op] = static_cast<float>(p.log_sigma);
    row.reason[op] = {p.bound, static_cast<float>(p.overhead.base() * share), p.in_range};
    row.model[op] =
        model_ids_.try_emplace(std::string(p.model), static_cast<std::int32_t>(model_ids_.size()))
            .first->second;
    if (static_cast<std::size_t>(row.model[op]) == costs_.models.size()) {
      costs_.models.emplace_back(p.model);
    }
    costs_.in_range = costs_.in_range && p.in_range;
  }

  /// A row with the compute ops of a program filled in.
  const OpCosts& kernels(std::size_t p) {
    OpCosts& row = kernels_[p];
    const Program& program = graph_.programs[p];
    if (row.ticks.size() != program.ops.size()) {
      const std::size_t n = program.ops.size();
      row = {.ticks = std::vector<std::int64_t>(n, 0),
             .model = std::vector<std::int32_t>(n, -1),
             .log_sigma = std::vector<float>(n, 0),
             .issue = {},
             .latency = {},
             .delay = {},
             .link_share = std::vector<float>(n, 0),
             .path = std::vector<std::int32_t>(n, -1),
             .needs = std::vector<std::int32_t>(n, -1),
             .reason = std::vector<OpReason>(n)};
      for (const double seconds : issue_seconds(program, host_)) {
        row.issue.push_back(to_ticks(Seconds(seconds)));
      }
      for (std::size_t o = 0; o < n; ++o) {
        const Op& op = program.ops[o];
        if (!is_collective(op.kind)) {
          answer(row, program, o, pricer_.kernel(program, op));
        }
      }
      if (model_.rest_matters()) {
        std::vector<Seconds> op_time;
        for (const std::int64_t ticks : row.ticks) {
          op_time.emplace_back(static_cast<double>(ticks) * 1e-12);
        }
        idle_time_[p] = models::since_last_use(program, op_time);
      }
    }
    return row;
  }

  /// Compute of the rank since the communicator's last use; negative where it does not matter.
  Seconds idle_time(std::size_t instance, std::size_t op) const {
    const auto& of_program =
        idle_time_[static_cast<std::size_t>(costs_.folding.instances[instance].program)];
    return of_program.empty() ? Seconds(-1) : of_program[op];
  }

  /// Ranks that take part in one transfer: the whole group, or sender and receiver.
  std::vector<std::int32_t> ranks_of(std::size_t instance, const Op& op) const {
    const std::int32_t g =
        costs_.folding.group(static_cast<std::int32_t>(instance), op.communicator);
    const std::int32_t own = costs_.folding.instances[instance].rank;
    if (g < 0) {
      return {own};
    }
    const Group& group = costs_.folding.groups[static_cast<std::size_t>(g)];
    if (!is_point_to_point(op.kind)) {
      return group.ranks;
    }
    const auto peer = static_cast<std::size_t>(op.peer);
    STEPCAST_CHECK(op.peer >= 0 && peer < group.members.size(), "op of rank {} names peer {} of {}",
                   own, op.peer, group.members.size());
    const auto& members = graph_.members(op.communicator, own);
    return {std::min(own, members[peer]), std::max(own, members[peer])};
  }

  /// How they lie on the fabric.
  const GroupShape& shape_of(std::size_t instance, const Op& op) {
    const std::tuple key(instance, op.communicator, is_point_to_point(op.kind) ? op.peer : -1);
    auto it = shapes_.find(key);
    if (it == shapes_.end()) {
      it =
          shapes_.emplace(key, group_shape(model_.system(), ranks_of(instance, op), graph_.ranks()))
              .first;
    }
    return it->second;
  }

  /// Levels on which the ranks lie apart, used as their ports are; both ways alike.
  std::int32_t path_of(const Op& op, const GroupShape& shape) {
    const System& system = model_.system();
    const std::vector<double> bytes =
        port_bytes(op.kind, algorithms(op.kind, shape, system).front(), 1, shape, system);
    std::vector<LevelUse> levels;
    std::int64_t inside = 1;
    for (std::size_t level = 0; level < shape.members.size(); ++level) {
      if (shape.members[level] > inside) {
        const double time = bytes[level] / models::port_bandwidth(system, shape, level);
        levels.push_back({static_cast<std::int32_t>(level), time, time});
      }
      inside = std::max(inside, shape.members[level]);
    }
    if (busiest(levels) <= 0) {
      for (LevelUse& at : levels) {
        at.sent = at.received = 1;
      }
    }
    return path_of(std::move(levels));
  }

  static double busiest(std::span<const LevelUse> levels) {
    double most = 0;
    for (const LevelUse& at : levels) {
      most = std::max({most, at.sent, at.received});
    }
    return most;
  }

  /// The path that uses its busiest link in full and others in proportion.
  std::int32_t path_of(std::vector<LevelUse> levels) {
    const double most = busiest(levels);
    if (most <= 0) {
      return -1;
    }
    for (LevelUse& at : levels) {
      at.sent /= most;
      at.received /= most;
    }
    const auto [it, fresh] =
        path_ids_.try_emplace(levels, static_cast<std::int32_t>(costs_.paths.size()));
    if (fresh) {
      costs_.paths.push_back(std::move(levels));
    }
    return it->second;
  }

  void price_collective(std::size_t instance, std::size_t o) {
    const Op& op = program_of(instance).ops[o];
    OpCosts& row = costs_.ops[instance];
    const GroupShape& shape = shape_of(instance, op);
    const auto key = std::make_pair(std::make_pair(costs_.folding.instances[instance].program, o),
                                    std::make_pair(shape.members, shape.siblings));
    auto it = collectives_.find(key);
    if (it == collectives_.end()) {
      it = collectives_.emplace(key, model_.collective(op, shape, idle_time(instance, o))).first;
    }
    const models::Prediction& p = it->second;
    answer(row, program_of(instance), o, p);
    row.path[o] = path_of(op, shape);
    row.link_share[o] =
        p.time.base() > 0 ? static_cast<float>(std::clamp(p.memory / p.time, 0.0, 1.0)) : 0;
  }

  /// Every all-to-all-v of a group needs the send counts of all members: the one with the same
  /// sequence number in each member's program.
  void price_all_to_all_v(const Group& group) {
    const auto c = static_cast<std::size_t>(group.communicator);
    const auto first = static_cast<std::size_t>(group.distinct.front());
    const auto& sequence = order_of(first).collectives(c);
    std::map<std::uint32_t, char> done;
    for (std::size_t s = 0; s < sequence.size(); ++s) {
      if (program_of(first).ops[sequence[s]].kind == OpKind::kAllToAllV &&
          done.try_emplace(sequence[s], char{1}).second) {
        price_exchange(group, s);
      }
    }
  }

  void price_exchange(const Group& group, std::size_t s) {
    const auto c = static_cast<std::size_t>(group.communicator);
    const std::size_t n = group.members.size();
    std::vector<Pricer::Part> parts;
    Seconds rest(-1);  // the longest: all wait for the coldest
    for (std::size_t i = 0; i < n; ++i) {
      const auto member = static_cast<std::size_t>(group.members[i]);
      const Program& program = program_of(member);
      const auto& own = order_of(member).collectives(c);
      STEPCAST_CHECK(s < own.size() && program.ops[own[s]].kind == OpKind::kAllToAllV,
                     "collective {} of communicator '{}' is no all_to_all_v on rank {}", s,
                     graph_.communicators[c].name, group.ranks[i]);
      parts.push_back({&program, &program.ops[own[s]]});
      rest = std::max(rest, idle_time(member, own[s]));
    }
    const auto [send, exchange] = pricer_.exchange(parts, group.ranks, rest);
    const std::vector<Seconds>& ends = exchange.ends;
    for (const std::int32_t d : group.distinct) {
      const auto instance = static_cast<std::size_t>(d);
      const std::uint32_t o = order_of(instance).collectives(c)[s];
      OpCosts& row = costs_.ops[instance];
      std::vector<bool> needed(costs_.ops.size(), false);
      Seconds longest, overhead;
      std::size_t last = 0;
      for (std::size_t i = 0; i < n; ++i) {
        if (group.members[i] != d) {
          continue;
        }
        if (ends[i] >= longest) {
          longest = ends[i];
          last = i;
          overhead = exchange.overheads[i];
        }
        for (std::size_t j = 0; j < n; ++j) {
          if (j != i && (send[i * n + j] > 0 || send[j * n + i] > 0)) {
            needed[static_cast<std::size_t>(group.members[j])] = true;
          }
        }
      }
      models::Prediction prediction;
      prediction.time = longest;
      prediction.overhead = overhead;
      prediction.bound = 2 * overhead > longest ? "latency" : "link";
      prediction.model = exchange.model;
      prediction.in_range = exchange.in_range;
      prediction.log_sigma = exchange.log_sigma;
      answer(row, program_of(instance), o, prediction);
      const std::vector<LevelUse> ports = ports_of(exchange.ports, last, n);
      row.path[o] = path_of(ports);
      row.link_share[o] = static_cast<float>(std::min(1.0, busiest(ports)));
      row.needs[o] = static_cast<std::int32_t>(costs_.needs.size());
      std::vector<std::int32_t>& needs = costs_.needs.emplace_back();
      for (const std::int32_t member : group.distinct) {
        if (needed[static_cast<std::size_t>(member)]) {
          needs.push_back(member);
        }
      }
    }
  }

  /// Ports of the i-th of n members of an exchange, in the time until it is done.
  static std::vector<LevelUse> ports_of(std::span<const models::PortUse> ports, std::size_t i,
                                        std::size_t n) {
    std::vector<LevelUse> levels;
    for (std::size_t level = 0; level < ports.size() / n; ++level) {
      const auto [sent, received] = ports[i * (ports.size() / n) + level];
      if (sent > 0 || received > 0) {
        levels.push_back({static_cast<std::int32_t>(level), sent, received});
      }
    }
    return levels;
  }

  const ExecutionOrder& order_of(std::size_t instance) const {
    return orders_[static_cast<std::size_t>(costs_.folding.instances[instance].program)];
  }

  using CollectiveKey = std::pair<std::pair<std::int32_t, std::size_t>,
                                  std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>>;
  const ExecutionGraph& graph_;
  const models::CostModel& model_;
  Pricer pricer_;
  models::HostCost host_;
  StepCosts& costs_;
  std::vector<OpCosts> kernels_;
  std::vector<std::vector<Seconds>> idle_time_;  // by program and op template
  std::vector<ExecutionOrder> orders_;
  std::map<std::string, std::int32_t> model_ids_;
  std::map<std::vector<LevelUse>, std::int32_t> path_ids_;
  std::map<std::tuple<std::size_t, std::int32_t, std::int32_t>, GroupShape> shapes_;
  std::map<CollectiveKey, models::Prediction> collectives_;
};

}  // namespace

StepCosts price(const ExecutionGraph& graph, const models::CostModel& model,
                const PricingOptions& options) {
  StepCosts costs;
  const Host& machine = model.system().host;
  const bool few_cores = machine.shares_core && machine.cores < machine.devices;
  costs.folding = fold(graph, options.unfold || few_cores);
  for (std::size_t i = 0; few_cores && i < costs.folding.instances.size(); ++i) {
    const std::int64_t rank = costs.folding.instances[i].rank;
    costs.core_of.push_back(
        static_cast<std::int32_t>(rank / machine.devices * machine.cores +
                                  rank % machine.devices * machine.cores / machine.devices));
  }
  costs.ops.resize(costs.folding.instances.size());
  costs.levels = static_cast<std::int32_t>(model.system().fabric.size());
  const models::HostCost host = model.host();
  for (const Seconds cost : {host.issue, host.dispatch, host.step, host.expert_layer}) {
    if (cost > kLongestStep) {
      reject_longer("host", cost);
    }
  }
  costs.issue = to_ticks(host.issue);
  costs.dispatch = to_ticks(host.dispatch);
  costs.step = to_ticks(host.step);
  costs.queue_depth = host.queue_depth;
  costs.shares_core = host.shares_core;
  costs.collectives_hold_core = host.shares_core && options.collectives_hold_core;
  costs.slowdown = model.compute_slowdown();
  costs.straggler = model.straggler();
  GraphCosts(graph, model, costs).run();
  return costs;
}

}  // namespace stepcast::simulator
