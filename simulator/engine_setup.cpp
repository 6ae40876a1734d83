#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "core/error.h"
#include "simulator/engine.h"

// What the engine knows before the first event: the order of every rank, and which transfers can
// never meet another.

namespace stepcast::simulator {
namespace {

std::vector<double> link_capacities(const StepCosts& costs) {
  // Link = (instance, level, direction): 0 sends, 1 receives.
  std::vector<double> capacity;
  capacity.reserve(costs.ops.size() * costs.level_capacity.size() * 2);
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    for (const double c : costs.level_capacity) {
      capacity.push_back(c);
      capacity.push_back(c);
    }
  }
  return capacity;
}

}  // namespace

Engine::Engine(const ExecutionGraph& graph, const StepCosts& costs,
               const SimulationOptions& options, Observer* observer)
    : graph_(graph),
      costs_(costs),
      options_(options),
      observer_(observer),
      core_(costs.shares_core),
      jitter_(options.jitter.sigma > 0),
      network_(link_capacities(costs)) {
  STEPCAST_CHECK(costs.issue >= 0 && costs.dispatch >= 0 && costs.step >= 0, "negative host costs");
  STEPCAST_CHECK(costs.queue_depth >= 1, "queue depth {}", costs.queue_depth);
  STEPCAST_CHECK(costs.slowdown >= 1, "compute slowdown {} < 1", costs.slowdown);
  STEPCAST_CHECK(costs.ops.size() == costs.folding.instances.size(),
                 "costs of {} ranks for {} instances", costs.ops.size(),
                 costs.folding.instances.size());
  for (const Program& program : graph.programs) {
    orders_.emplace_back(program, graph.communicators.size());
  }
  ranks_.resize(costs.folding.instances.size());
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    prepare(i);
  }
  STEPCAST_CHECK(costs.core_of.empty() || costs.core_of.size() == ranks_.size(),
                 "cores of {} ranks for {} instances", costs.core_of.size(), ranks_.size());
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    ranks_[r].core = costs.core_of.empty() ? r : static_cast<std::uint32_t>(costs.core_of[r]);
    cores_.resize(std::max<std::size_t>(cores_.size(), ranks_[r].core + 1));
    Core& core = cores_[ranks_[r].core];
    core.ranks.push_back(r);
    core.last = core.ranks.front();
  }
  check_length();
  first_core_ = static_cast<std::uint32_t>(source_rank_.size());
  network_source_ = first_core_ + static_cast<std::uint32_t>(cores_.size());
  first_transfer_ = network_source_ + 1;
  open_.resize(costs.folding.groups.size());
  spread_ = costs.straggler.log_sigma * std::sqrt(std::max(0.0, 1 - costs.straggler.rho));
}

/// Even if nothing of the step overlapped, on any rank, the clock would hold it.
void Engine::check_length() const {
  double serial = 0;
  for (const Rank& rank : ranks_) {
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
    serial +=
        static_cast<double>(costs_.issue + costs_.dispatch) * static_cast<double>(rank.order->ops());
  }
  if (const Seconds time(serial * 1e-12); time > kLongestStep) {
    refuse_longer(ranks_.size() == 1
                      ? std::string("the step")
                      : fmt::format("the step, over the {} ranks that differ", ranks_.size()),
                  time);
  }
}

void Engine::prepare(std::size_t instance) {
  const Instance& info = costs_.folding.instances[instance];
  Rank& rank = ranks_[instance];
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

  // Can two of its transfers be in flight at once, or a transfer beside compute?
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
  timed_ = timed_ || core_ || rated || talkers > 1;

  const auto depth = static_cast<std::uint64_t>(costs_.queue_depth);
  rank.unbounded =
      !core_ && rank.costs->issue.empty() && rank.costs->latency.empty() && !order.host_waits();
  std::size_t ring = 0;
  for (const std::uint64_t total : order.stream_ops()) {
    rank.unbounded = rank.unbounded && total <= depth;
    ring += static_cast<std::size_t>(std::min(total, depth));
  }
  rank.ring_storage.assign(rank.unbounded ? 0 : ring, 0);
  rank.host_time = costs_.step;
  rank.host_ready = !core_ && !rank.unbounded;
  if (rank.unbounded) {
    rank.host_issued = order.ops();
    rank.host_time += static_cast<std::int64_t>(order.ops()) * costs_.issue;
  }
  rank.streams.resize(order.streams());
  first_source_.push_back(static_cast<std::uint32_t>(source_rank_.size()));
  std::int64_t* slot = rank.ring_storage.data();
  for (std::size_t s = 0; s < order.streams(); ++s) {
    Stream& stream = rank.streams[s];
    stream.total = order.stream_ops()[s];
    stream.issued = rank.unbounded ? stream.total : 0;
    stream.capacity = static_cast<std::uint32_t>(std::min(stream.total, depth));
    if (!rank.unbounded) {
      stream.ring = slot;
      slot += stream.capacity;
    }
    if (!order.program().calls.empty()) {
      const ExecutionOrder::Row row = order.row(0, static_cast<std::uint32_t>(s));
      stream.at = row.first;
      stream.at_end = row.last;
    }
    source_rank_.push_back(static_cast<std::uint32_t>(instance));
  }
  rank.runnable = order.streams() == 64 ? ~0ULL : (1ULL << order.streams()) - 1;
  rank.record_time.assign(order.records(), kUnknown);
  rank.prefix.assign(order.entries().size() + 1, 0);
  for (std::size_t i = 0; i < order.entries().size(); ++i) {
    rank.prefix[i + 1] = rank.prefix[i] + costs_.dispatch + rank.costs->ticks[order.entries()[i]];
  }
  for (std::int32_t c = 0; c < costs_.folding.communicators; ++c) {
    const std::int32_t g = costs_.folding.group(static_cast<std::int32_t>(instance), c);
    std::int32_t member = -1;
    if (g >= 0) {
      const auto& distinct = costs_.folding.groups[static_cast<std::size_t>(g)].distinct;
      member = static_cast<std::int32_t>(
          std::lower_bound(distinct.begin(), distinct.end(), static_cast<std::int32_t>(instance)) -
          distinct.begin());
    }
    rank.member.push_back(member);
  }
}

/// Transfers that can be in flight together: one of each stream, and a send to each peer.
void Engine::find_alone(std::size_t instance) {
  Rank& rank = ranks_[instance];
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
      for (const std::int32_t level : costs_.paths[static_cast<std::size_t>(rank.costs->path[o])]) {
        bits |= 1ULL << level;
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
