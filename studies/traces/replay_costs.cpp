#include "studies/traces/replay_costs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "core/config/suggest.h"
#include "core/error.h"
#include "core/glob.h"
#include "core/graph/collective_schedule.h"
#include "core/graph/execution_order.h"
#include "core/graph/kernel_kind.h"
#include "core/graph/op_traits.h"
#include "models/cost_model.h"
#include "studies/fit/error_statistics.h"

namespace stepcast::studies {
namespace {

using simulator::OpCosts;
using simulator::StepCosts;

constexpr std::string_view kHost = "host";

std::int64_t median_ticks(const std::vector<std::int64_t>& values) {
  std::vector<double> v;
  for (const std::int64_t t : values) {
    if (t >= 0) {
      v.push_back(static_cast<double>(t));
    }
  }
  return v.empty() ? 0 : std::llround(median_of(std::move(v)));
}

/// Members of a symmetric collective all get the least of their durations. A template that is
/// executed several times is compared in its first execution.
void share_collectives(const ExecutionGraph& graph, StepCosts& costs) {
  std::vector<ExecutionOrder> orders;
  for (const Program& program : graph.programs) {
    orders.emplace_back(program, graph.communicators.size());
  }
  std::map<std::pair<std::int32_t, std::size_t>, std::int64_t> least;  // by group and number
  const auto visit = [&](const auto& change) {
    for (std::size_t i = 0; i < costs.ops.size(); ++i) {
      const ExecutionOrder& order =
          orders[static_cast<std::size_t>(costs.folding.instances[i].program)];
      std::vector<char> seen(costs.ops[i].ticks.size(), 0);
      for (std::size_t c = 0; c < graph.communicators.size(); ++c) {
        const std::int32_t group =
            costs.folding.group(static_cast<std::int32_t>(i), static_cast<std::int32_t>(c));
        const auto& sequence = order.collectives(c);
        for (std::size_t n = 0; group >= 0 && n < sequence.size(); ++n) {
          const std::uint32_t o = sequence[n];
          if (ends_together(order.program().ops[o].kind) && std::exchange(seen[o], 1) == 0) {
            change(std::pair{group, n}, costs.ops[i].ticks[o]);
          }
        }
      }
    }
  };
  visit([&](const auto& key, std::int64_t ticks) {
    const auto [it, fresh] = least.try_emplace(key, ticks);
    it->second = std::min(it->second, ticks);
  });
  visit([&](const auto& key, std::int64_t& ticks) { ticks = least.at(key); });
}

bool selects(std::string_view what, const Program& program, const Op& op) {
  return what == "all" || what == name_of(op.kind) || what == name_of(class_of(op.kind)) ||
         what == name_of(kernel_kind_of(op)) || (what == "comm" && is_collective(op.kind)) ||
         (what == "compute" && !is_collective(op.kind)) || glob_matches(what, program.name(op));
}

/// Host time between launches: of every op, and around the step.
template <typename Change>
void for_host(StepCosts& costs, Change change) {
  for (OpCosts& row : costs.ops) {
    for (std::int64_t& issue : row.issue) {
      change(issue);
    }
  }
  change(costs.step);
  change(costs.finish);
}

/// Launches with no synchronising call between them become one.
void join_launches(const ExecutionGraph& graph, StepCosts& costs) {
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const Program& program =
        graph.programs[static_cast<std::size_t>(costs.folding.instances[i].program)];
    OpCosts& row = costs.ops[i];
    for (const Segment& segment : program.segments) {
      bool first = true;
      for (std::size_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
        // Calls of the host's own take no device time, and end a graph.
        const bool call = row.ticks[o] == 0 || (program.ops[o].flags & op_flags::kHostWaits) != 0;
        if (!call && !first) {
          row.issue[o] = 0;
          if (!row.latency.empty()) {
            row.latency[o] = 0;
          }
        }
        first = call;
      }
    }
  }
}

/// Message for a name that no op has which takes time: the nearest, else the groups there are.
std::string no_match(const std::string& what, const ExecutionGraph& graph, const StepCosts& costs) {
  std::set<std::string> groups{std::string(kHost), "all"}, names;
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const Program& program =
        graph.programs[static_cast<std::size_t>(costs.folding.instances[i].program)];
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      const Op& op = program.ops[o];
      if (costs.ops[i].ticks[o] > 0) {
        groups.insert({is_collective(op.kind) ? "comm" : "compute", std::string(name_of(op.kind)),
                       std::string(name_of(class_of(op.kind))),
                       std::string(name_of(kernel_kind_of(op)))});
        names.insert(program.name(op));
      }
    }
  }
  std::vector<std::string> all(groups.begin(), groups.end());
  all.insert(all.end(), names.begin(), names.end());
  const std::string near = config::nearest_name(what, all);
  return fmt::format("matches no op of the trace that takes device time; {}",
                     near.empty() ? fmt::format("expected one of {}, or the name of a kernel, * "
                                                "standing for any text",
                                                fmt::join(groups, ", "))
                                  : fmt::format("did you mean \"{}\"?", near));
}

/// Visits the time of every selected op of every simulated rank.
template <typename Change>
void for_selected(const std::string& what, const ExecutionGraph& graph, StepCosts& costs,
                  Change change) {
  bool found = false;
  if (what == kHost) {
    for_host(costs, [&](std::int64_t& ticks) {
      found = found || ticks > 0;
      change(ticks);
    });
    if (!found) {
      throw InputError(what, "takes no time in this trace");
    }
    return;
  }
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const Program& program =
        graph.programs[static_cast<std::size_t>(costs.folding.instances[i].program)];
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      if (costs.ops[i].ticks[o] > 0 && selects(what, program, program.ops[o])) {
        found = true;
        change(costs.ops[i].ticks[o]);
      }
    }
  }
  if (!found) {
    throw InputError(what, no_match(what, graph, costs));
  }
}

/// A recorded graph as models can price it: what has no shape, or a collective whose members the
/// trace does not hold, is recorded work; unequal exchanges without their matrix are equal ones.
ExecutionGraph priceable(ExecutionGraph graph) {
  for (Program& program : graph.programs) {
    for (Op& op : program.ops) {
      const bool collective = is_collective(op.kind);
      const bool shaped = op.shape[0] > 0 || op.kind == OpKind::kBarrier;
      if (!shaped || (collective && op.communicator < 0)) {
        op.kind = OpKind::kRecorded;
      } else if (op.kind == OpKind::kAllToAllV && op.as<CollectiveAttributes>().exchange < 0) {
        op.kind = OpKind::kAllToAll;
      }
    }
  }
  return graph;
}

/// Costs of collectives all of whose members the graph has.
bool price_whole(const models::CostModel& model, const ExecutionGraph& recorded, StepCosts& costs) {
  const bool hold_core = model.system().host.collectives_hold_core;
  const ExecutionGraph graph = priceable(recorded);
  bool found = false;
  const StepCosts priced =
      simulator::price(graph, model, {.unfold = true, .collectives_hold_core = hold_core});
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const Program& program =
        graph.programs[static_cast<std::size_t>(costs.folding.instances[i].program)];
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      if (is_collective(program.ops[o].kind)) {
        found = true;
        costs.ops[i].ticks[o] = priced.ops[i].ticks[o];
        costs.ops[i].path[o] = priced.ops[i].path[o];
        costs.ops[i].link_share[o] = priced.ops[i].link_share[o];
        costs.ops[i].needs[o] = priced.ops[i].needs[o];
      }
    }
  }
  costs.needs = priced.needs;
  costs.paths = priced.paths;
  costs.levels = priced.levels;
  costs.collectives_hold_core = costs.shares_core && hold_core;
  return found;
}

/// Costs of collectives that a rank recorded without all their members: the wait stays, the
/// transfer is priced. The shortest of those of a group that carry at least as much is an upper
/// bound of the transfer, what it lasted longer was wait. Returns how many there are.
std::int64_t price_partial(const models::CostModel& model, const traces::MeasuredRank& rank,
                           const Program& program, OpCosts& row) {
  using Alike = std::pair<OpKind, std::vector<std::int32_t>>;
  std::map<Alike, std::vector<std::pair<std::int64_t, std::uint32_t>>> groups;  // elements, op
  for (const auto& [o, members] : rank.partial) {
    const Op& op = program.ops[o];
    if (op.shape[0] > 0 && !is_point_to_point(op.kind)) {
      groups[{op.kind, members}].emplace_back(op.shape[0], o);
    }
  }
  std::int64_t count = 0;
  for (auto& [alike, ops] : groups) {
    const GroupShape shape = group_shape(model.system(), alike.second, rank.world);
    std::sort(ops.rbegin(), ops.rend());
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (auto first = ops.begin(); first != ops.end();) {
      const auto last =
          std::find_if(first, ops.end(), [&](const auto& o) { return o.first != first->first; });
      for (auto o = first; o != last; ++o) {
        shortest = std::min(shortest, row.ticks[o->second]);
      }
      Op op = program.ops[first->second];
      op.kind = op.kind == OpKind::kAllToAllV ? OpKind::kAllToAll : op.kind;
      const std::int64_t transfer = to_ticks(model.collective(op, shape).time);
      for (; first != last; ++first, ++count) {
        row.ticks[first->second] += transfer - shortest;
      }
    }
  }
  return count;
}

}  // namespace

StepCosts measured_costs(const traces::MeasuredRun& run,
                         std::span<const traces::MeasuredStep> steps) {
  STEPCAST_CHECK(!steps.empty(), "costs of no step");
  const ExecutionGraph& graph = *steps.front().graph;
  StepCosts costs = simulator::blank_costs(graph, true);
  costs.shares_core = run.shares_core;
  costs.collectives_hold_core = run.shares_core && run.collectives_hold_core;
  costs.models = {"recorded"};
  std::vector<std::int64_t> dispatch, finish;
  for (std::size_t r = 0; r < costs.ops.size(); ++r) {
    OpCosts& row = costs.ops[r];
    const auto rank = static_cast<std::size_t>(costs.folding.instances[r].rank);
    row.issue.assign(row.ticks.size(), 0);
    // By op, of a capture: from the one recording that it is.
    row.latency = steps.front().ranks[rank].latency;
    row.delay = steps.front().ranks[rank].delay;
    std::fill(row.model.begin(), row.model.end(), 0);
    std::fill(row.path.begin(), row.path.end(), -1);  // sharing is in the recorded times
    std::fill(row.link_share.begin(), row.link_share.end(), 0.0F);
    const traces::MeasuredRank& first = steps.front().ranks[rank];
    for (std::size_t o = 0; o < row.ticks.size(); ++o) {
      if (steps.size() == 1) {  // a capture, of any length
        row.ticks[o] = std::max<std::int64_t>(0, first.duration[o]);
        row.issue[o] = std::max<std::int64_t>(0, first.issue[o]);
        continue;
      }
      std::vector<std::int64_t> device, host;
      for (const traces::MeasuredStep& step : steps) {
        STEPCAST_CHECK(step.graph == steps.front().graph, "steps of different graphs");
        device.push_back(step.ranks[rank].duration[o]);
        host.push_back(step.ranks[rank].issue[o]);
      }
      row.ticks[o] = median_ticks(device);
      row.issue[o] = median_ticks(host);
    }
    for (const traces::MeasuredStep& step : steps) {
      dispatch.push_back(step.ranks[rank].dispatch);
      finish.push_back(step.ranks[rank].finish);
    }
  }
  costs.dispatch = median_ticks(dispatch);
  costs.finish = median_ticks(finish);
  share_collectives(graph, costs);
  return costs;
}

void apply(const ReplayChange& change, const ExecutionGraph& graph, StepCosts& costs) {
  if (change.graphs) {
    join_launches(graph, costs);
  }
  for (const auto& [what, factor] : change.scales) {
    for_selected(what, graph, costs, [factor = factor](std::int64_t& ticks) {
      ticks = std::llround(static_cast<double>(ticks) * factor);
    });
  }
  for (const std::string& what : change.drops) {
    for_selected(what, graph, costs, [](std::int64_t& ticks) { ticks = 0; });
  }
}

std::int64_t move_collectives(std::span<const traces::MeasuredRank> ranks,
                              const ExecutionGraph& graph, const System& to, StepCosts& costs) {
  const models::CostModel model(to, {});
  const std::int64_t joined = to.fabric.empty() ? 1 : to.devices_in_level(to.fabric.size() - 1);
  std::int64_t world = graph.ranks();
  for (const traces::MeasuredRank& rank : ranks) {
    world = std::max<std::int64_t>(world, rank.world);
  }
  if (world > joined) {
    throw InputError("--network", fmt::format("system {} joins {} devices, the run has {} ranks; "
                                              "expected a larger one",
                                              to.name, joined, world));
  }
  bool found = price_whole(model, graph, costs);
  std::int64_t partial = 0;
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const simulator::Instance& instance = costs.folding.instances[i];
    const auto rank = static_cast<std::size_t>(instance.rank);
    if (rank < ranks.size()) {  // the job on more ranks has them all
      partial +=
          price_partial(model, ranks[rank],
                        graph.programs[static_cast<std::size_t>(instance.program)], costs.ops[i]);
    }
  }
  if (!found && partial == 0) {
    throw InputError("--network",
                     "has nothing to change: the trace holds no collective whose size and members "
                     "are known (record it with their metadata)");
  }
  return partial;
}

ChangedShare changed_share(const ExecutionGraph& graph, const StepCosts& before,
                           const StepCosts& after) {
  ChangedShare share;
  double device = 0, host = 0, device_changed = 0, host_changed = 0;
  std::map<std::string, double> stayed;
  for (std::size_t i = 0; i < before.ops.size(); ++i) {
    const Program& program =
        graph.programs[static_cast<std::size_t>(before.folding.instances[i].program)];
    for (const Call& call : program.calls) {
      const Segment& segment = program.segments[call.segment];
      for (std::size_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
        const auto ticks = static_cast<double>(before.ops[i].ticks[o]);
        const auto issue = static_cast<double>(before.ops[i].issue[o]);
        device += ticks;
        host += issue;
        host_changed += before.ops[i].issue[o] != after.ops[i].issue[o] ? issue : 0;
        if (before.ops[i].ticks[o] != after.ops[i].ticks[o]) {
          device_changed += ticks;
        } else if (ticks > 0) {
          stayed[program.name(program.ops[o])] += ticks;
        }
      }
    }
  }
  share.device = device > 0 ? device_changed / device : 0;
  share.host = host > 0 ? host_changed / host : 0;
  for (const auto& [name, ticks] : stayed) {
    share.stayed.emplace_back(name, ticks / device);
  }
  std::stable_sort(share.stayed.begin(), share.stayed.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return share;
}

void scale_device_times(StepCosts& costs, double factor) {
  for (OpCosts& row : costs.ops) {
    for (std::int64_t& ticks : row.ticks) {
      ticks = std::llround(static_cast<double>(ticks) * factor);
    }
  }
}

StepCosts carried_costs(const ExecutionGraph& recorded, const StepCosts& recorded_costs,
                        const ExecutionGraph& graph, const System& system,
                        const Calibration& calibration) {
  const models::CostModel model(system, calibration);
  const simulator::PricingOptions pricing{
      .unfold = true, .collectives_hold_core = recorded_costs.collectives_hold_core};
  const StepCosts before = simulator::price(recorded, model, pricing);
  StepCosts after = simulator::price(graph, model, pricing);
  // Ratio of the record to the models, by named op and by class.
  struct Correction {
    std::vector<double> ratio, issue;
  };
  std::map<std::tuple<std::string, OpKind, Phase>, Correction> by_name;
  std::map<OpClass, std::vector<double>> by_class;
  for (std::size_t i = 0; i < before.ops.size(); ++i) {
    const Program& program =
        recorded.programs[static_cast<std::size_t>(before.folding.instances[i].program)];
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      const Op& op = program.ops[o];
      Correction& c = by_name[{program.name(op), op.kind, op.phase}];
      c.issue.push_back(static_cast<double>(recorded_costs.ops[i].issue[o]));
      if (before.ops[i].ticks[o] > 0) {
        const double ratio = static_cast<double>(recorded_costs.ops[i].ticks[o]) /
                             static_cast<double>(before.ops[i].ticks[o]);
        c.ratio.push_back(ratio);
        by_class[class_of(op.kind)].push_back(ratio);
      }
    }
  }
  for (std::size_t i = 0; i < after.ops.size(); ++i) {
    OpCosts& row = after.ops[i];
    const Program& program =
        graph.programs[static_cast<std::size_t>(after.folding.instances[i].program)];
    row.issue.assign(row.ticks.size(), after.issue);
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      const Op& op = program.ops[o];
      const auto found = by_name.find({program.name(op), op.kind, op.phase});
      const std::vector<double>* ratios = &by_class[class_of(op.kind)];
      if (found != by_name.end()) {
        row.issue[o] = std::llround(median_of(found->second.issue));
        ratios = found->second.ratio.empty() ? ratios : &found->second.ratio;
      }
      const double ratio = ratios->empty() ? 1 : median_of(*ratios);
      row.ticks[o] = std::llround(static_cast<double>(row.ticks[o]) * ratio);
    }
  }
  after.dispatch = recorded_costs.dispatch;
  after.finish = recorded_costs.finish;
  after.step = 0;
  after.shares_core = recorded_costs.shares_core;
  after.collectives_hold_core = recorded_costs.collectives_hold_core;
  after.straggler = {};
  after.slowdown = 1;
  return after;
}

namespace {

/// Traffic of an op without a shape; null where nothing tells.
const traces::OperatorTraffic* traffic_of(const traces::MeasuredRank& rank, std::size_t op) {
  if (rank.unshaped_of.empty() || rank.unshaped_of[op] < 0) {
    return nullptr;
  }
  const auto& traffic = rank.unshaped[static_cast<std::size_t>(rank.unshaped_of[op])].traffic;
  return traffic ? &*traffic : nullptr;
}

/// 0 where the device has no such peak.
double roofline(const traces::OperatorTraffic& t, const Device& device) {
  const auto peak = device.peak_of(t.format);
  return peak ? std::max(t.flops / peak->base(), t.bytes / device.bandwidth.base()) : 0;
}

}  // namespace

std::int64_t move_kernels(const traces::MeasuredStep& step, const System& from, const Device& to,
                          const Calibration& calibration, StepCosts& costs) {
  const ExecutionGraph graph = priceable(*step.graph);
  std::int64_t moved_kernels = 0;
  System moved = from;
  moved.device = to;
  const simulator::PricingOptions pricing{.unfold = true,
                                          .collectives_hold_core = costs.collectives_hold_core};
  const StepCosts before = simulator::price(graph, models::CostModel(from, calibration), pricing);
  const StepCosts after = simulator::price(graph, models::CostModel(moved, calibration), pricing);
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const auto& instance = before.folding.instances[i];
    const Program& program = graph.programs[static_cast<std::size_t>(instance.program)];
    const traces::MeasuredRank& rank = step.ranks[static_cast<std::size_t>(instance.rank)];
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      const OpKind kind = program.ops[o].kind;
      double ratio = 0;
      if (!is_collective(kind) && kind != OpKind::kRecorded && before.ops[i].ticks[o] > 0) {
        ratio = static_cast<double>(after.ops[i].ticks[o]) /
                static_cast<double>(before.ops[i].ticks[o]);
      } else if (const auto* known = traffic_of(rank, o);
                 known != nullptr && roofline(*known, from.device) > 0) {
        ratio = roofline(*known, to) / roofline(*known, from.device);
      }
      if (ratio > 0) {
        ++moved_kernels;
        std::int64_t& ticks = costs.ops[i].ticks[o];
        ticks = std::llround(static_cast<double>(ticks) * ratio);
      }
    }
  }
  return moved_kernels;
}

}  // namespace stepcast::studies
