#include <algorithm>
#include <bit>
#include <map>

#include "core/access/row_order.h"
#include "core/error.h"
#include "simulator/engine.h"

// Set-up before the first event: the order of every rank, and which transfers can
// never meet another.

namespace stepcast::simulator {
namespace {

std::vector<ExecutionOrder> orders_of(const ExecutionGraph& graph) {
  std::vector<ExecutionOrder> orders;
  for (const Program& program : graph.programs) {
    orders.emplace_back(program, graph.communicators.size());
  }
  return orders;
}

std::uint32_t streams_of(const ExecutionGraph& graph, const StepCosts& costs) {
  std::size_t streams = 0;
  for (const Instance& instance : costs.folding.instances) {
    streams += graph.programs[static_cast<std::size_t>(instance.program)].streams.size();
  }
  return static_cast<std::uint32_t>(streams);
}

}  // namespace

Engine::Engine(const ExecutionGraph& graph, const StepCosts& costs,
               const SimulationOptions& options, Observer* observer)
    : graph_(graph),
      costs_(costs),
      options_(options),
      observer_(observer),
      core_(costs.shares_core),
      orders_(orders_of(graph)),
      ranks_(costs.folding.instances.size()),
      first_core_(streams_of(graph, costs)),
      hosts_(costs, queue_, first_core_, ranks_, *this),
      first_link_(first_core_ + hosts_.cores()),
      links_(costs, queue_, first_link_, *this),
      rendezvous_(graph, costs, ranks_, links_) {
  STEPCAST_CHECK(costs.issue >= 0 && costs.dispatch >= 0 && costs.step >= 0, "negative host costs");
  STEPCAST_CHECK(costs.queue_depth >= 1, "queue depth {}", costs.queue_depth);
  STEPCAST_CHECK(costs.slowdown >= 1, "compute slowdown {} < 1", costs.slowdown);
  STEPCAST_CHECK(costs.ops.size() == costs.folding.instances.size(),
                 "costs of {} ranks for {} instances", costs.ops.size(),
                 costs.folding.instances.size());
  hosts_.observe(observer, options.step);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    prepare(i);
  }
  check_length();
}

/// Even if nothing of the step overlapped, on any rank, the clock would hold it.
void Engine::check_length() const {
  double serial = 0;
  for (const RankState& rank : ranks_) {
    const Program& program = rank.order->program();
    std::vector<double> of_segment;
    for (const Segment& segment : program.segments) {
      double ticks = 0;
      for (std::uint32_t o = segment.first_op; o < segment.first_op + segment.op_count; ++o) {
        ticks += static_cast<double>(rank.costs->ticks[o]) *
                 (rank.order->role(o) == OpRole::kCompute ? costs_.slowdown : 1.0);
      }
      of_segment.push_back(ticks);
    }
    for (const Call& call : program.calls) {
      serial += of_segment[call.segment];
    }
    serial += static_cast<double>(costs_.issue + costs_.dispatch) *
              static_cast<double>(rank.order->ops());
  }
  if (const Seconds time(serial * 1e-12); time > kLongestStep) {
    reject_longer(ranks_.size() == 1
                      ? std::string("the step")
                      : fmt::format("the step, over the {} ranks that differ", ranks_.size()),
                  time);
  }
}

void Engine::prepare(std::size_t instance) {
  const Instance& info = costs_.folding.instances[instance];
  RankState& rank = ranks_[instance];
  rank.order = &orders_[static_cast<std::size_t>(info.program)];
  rank.costs = &costs_.ops[instance];
  rank.rank = info.rank;
  const ExecutionOrder& order = *rank.order;
  const std::size_t templates = order.program().ops.size();
  STEPCAST_CHECK(rank.costs->ticks.size() == templates, "{} costs for {} op templates",
                 rank.costs->ticks.size(), templates);
  STEPCAST_CHECK(rank.costs->issue.empty() || rank.costs->issue.size() == templates,
                 "{} issue costs for {} op templates", rank.costs->issue.size(), templates);
  STEPCAST_CHECK(rank.costs->latency.empty() || rank.costs->latency.size() == templates,
                 "{} latencies for {} op templates", rank.costs->latency.size(), templates);

  // True if two of its transfers, or a transfer and compute, can be in flight at once.
  std::uint64_t talking = 0;
  bool sends = false;
  for (std::size_t o = 0; o < templates; ++o) {
    STEPCAST_CHECK(rank.costs->ticks[o] >= 0, "negative cost of '{}'",
                   order.program().name(order.program().ops[o]));
    sends = sends || order.role(o) == OpRole::kSend;
    if (order.role(o) != OpRole::kCompute && order.role(o) != OpRole::kSend) {
      talking |= 1ULL << order.stream(o);
    }
  }
  const int talkers = std::popcount(talking) + (sends ? 1 : 0);
  const bool rated = costs_.slowdown > 1 && talkers > 0 && (order.streams() > 1 || sends);
  rank.ahead = !core_ && !rated;
  if (rank.ahead) {
    find_alone(instance);
  }
  if (rated || talkers > 1) {
    links_.time_ends();
  }

  const auto depth = static_cast<std::uint64_t>(costs_.queue_depth);
  rank.unbounded = !core_ && rank.costs->issue.empty() && rank.costs->latency.empty() &&
                   rank.costs->delay.empty() && !order.host_waits();
  std::size_t ring = 0;
  for (const std::uint64_t total : order.stream_ops()) {
    rank.unbounded = rank.unbounded && total <= depth;
    ring += static_cast<std::size_t>(std::min(total, depth));
  }
  rank.ring_storage.assign(rank.unbounded ? 0 : ring, 0);
  if (rank.unbounded) {
    hosts_.issue_all(static_cast<std::uint32_t>(instance));
  }
  prepare_streams(rank, static_cast<std::uint32_t>(instance));
}

void Engine::prepare_streams(RankState& rank, std::uint32_t instance) {
  const ExecutionOrder& order = *rank.order;
  rank.streams.resize(order.streams());
  first_source_.push_back(static_cast<std::uint32_t>(source_rank_.size()));
  std::int64_t* slot = rank.ring_storage.data();
  for (std::size_t s = 0; s < order.streams(); ++s) {
    StreamState& stream = rank.streams[s];
    stream.total = order.stream_ops()[s];
    stream.issued = rank.unbounded ? stream.total : 0;
    stream.capacity = static_cast<std::uint32_t>(
        std::min(stream.total, static_cast<std::uint64_t>(costs_.queue_depth)));
    if (!rank.unbounded) {
      stream.ring = slot;
      slot += stream.capacity;
    }
    if (!order.program().calls.empty()) {
      const ExecutionOrder::Row row = order.row(0, static_cast<std::uint32_t>(s));
      stream.at = row.first;
      stream.at_end = row.last;
    }
    source_rank_.push_back(instance);
  }
  rank.runnable = order.streams() == 64 ? ~0ULL : (1ULL << order.streams()) - 1;
  rank.record_time.assign(order.records(), kUnknownTime);
  rank.prefix.assign(order.entries().size() + 1, 0);
  for (std::size_t i = 0; i < order.entries().size(); ++i) {
    rank.prefix[i + 1] = rank.prefix[i] + costs_.dispatch + rank.costs->ticks[order.entries()[i]];
  }
}

/// Transfers that can be in flight together: one of each stream, and a send to each peer.
void Engine::find_alone(std::size_t instance) {
  RankState& rank = ranks_[instance];
  const ExecutionOrder& order = *rank.order;
  const std::vector<Op>& ops = order.program().ops;
  std::map<std::int64_t, std::uint64_t> levels_of;  // by what takes one transfer at a time
  const auto place = [&](std::size_t o) {
    return order.role(o) == OpRole::kSend
               ? 64 + (static_cast<std::int64_t>(ops[o].communicator) << 32) + ops[o].peer
               : std::int64_t{order.stream(o)};
  };
  const auto levels = [&](std::size_t o) {
    std::uint64_t bits = 0;
    if (rank.costs->path[o] >= 0) {
      for (const LevelUse& use : costs_.paths[static_cast<std::size_t>(rank.costs->path[o])]) {
        bits |= 1ULL << use.level;
      }
    }
    return bits;
  };
  rank.alone.assign(ops.size(), 0);
  for (std::size_t o = 0; o < ops.size(); ++o) {
    if (order.role(o) != OpRole::kCompute) {
      levels_of[place(o)] |= levels(o);
    }
  }
  for (std::size_t o = 0; o < ops.size(); ++o) {
    const std::int32_t g =
        costs_.folding.group(static_cast<std::int32_t>(instance), ops[o].communicator);
    if (order.role(o) != OpRole::kSymmetric || g < 0 ||
        costs_.folding.groups[static_cast<std::size_t>(g)].distinct.size() != 1) {
      continue;
    }
    std::uint64_t others = 0;
    for (const auto& [other, used] : levels_of) {
      others |= other == place(o) ? 0 : used;
    }
    rank.alone[o] = (others & levels(o)) == 0 ? 1 : 0;
  }
}

}  // namespace stepcast::simulator
