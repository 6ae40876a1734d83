#include "traces/trace.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/graph/op_traits.h"
#include "core/statistics.h"

namespace stepcast::traces {
namespace {

/// One collective of one group in one step: the n-th collective of that communicator, counted per
/// rank.
using Instance = std::tuple<std::int32_t /*communicator*/, std::int32_t /*first member*/,
                            std::int32_t /*step*/, std::int64_t /*key*/, std::int64_t /*sequence*/>;

struct Member {
  std::size_t rank_index;
  std::size_t span_index;
};

/// Point-to-point ops meet by their pair and tag, in order; all others by their order within the
/// communicator.
std::int64_t pair_key(const ExecutionGraph& graph, const Op& op, const Call& call,
                      std::int32_t rank) {
  if (!is_point_to_point(op.kind)) {
    return 0;
  }
  const auto members = graph.members(op.communicator, rank);
  const auto here = std::find(members.begin(), members.end(), rank) - members.begin();
  const std::int64_t from = op.kind == OpKind::kSend ? here : op.peer;
  const std::int64_t to = op.kind == OpKind::kSend ? op.peer : here;
  return 1 + ((from * 65536 + to) * 65536 + call.microbatch) * 1024 + op.shape[1];
}

std::map<Instance, std::vector<Member>> instances_of(const GraphRun& trace) {
  std::map<Instance, std::vector<Member>> instances;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const RankTrace& rank = trace.ranks[r];
    const Program& program = trace.graph.program_of(rank.rank);
    std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::int64_t> next;
    std::map<std::int32_t, std::int32_t> first_member;
    std::vector<std::size_t> order(rank.ops.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(), [&rank](std::size_t a, std::size_t b) {
      return std::tie(rank.ops[a].step, rank.ops[a].ref) <
             std::tie(rank.ops[b].step, rank.ops[b].ref);
    });
    for (const std::size_t i : order) {
      const OpSpan& span = rank.ops[i];
      const Op& op = program.ops[span.ref.op];
      if (!is_collective(op.kind) || op.communicator < 0) {
        continue;
      }
      const auto [first, fresh] = first_member.try_emplace(op.communicator, 0);
      if (fresh) {
        first->second = trace.graph.members(op.communicator, rank.rank).front();
      }
      const std::int64_t key = pair_key(trace.graph, op, program.calls[span.ref.call], rank.rank);
      const std::int64_t sequence = next[{op.communicator, span.step, key}]++;
      instances[{op.communicator, first->second, span.step, key, sequence}].push_back({r, i});
    }
  }
  return instances;
}

}  // namespace

void align_clocks(GraphRun& trace) {
  if (trace.ranks.size() < 2) {
    return;
  }
  const auto instances = instances_of(trace);
  std::vector<std::vector<double>> distance(trace.ranks.size());
  for (const auto& [id, members] : instances) {
    const OpSpan& reference = trace.ranks[members[0].rank_index].ops[members[0].span_index];
    const Op& op = trace.graph.program_of(reference.rank).ops[reference.ref.op];
    if (members[0].rank_index != 0 || !ends_together(op.kind)) {
      continue;
    }
    for (const Member& m : members) {
      const OpSpan& span = trace.ranks[m.rank_index].ops[m.span_index];
      distance[m.rank_index].push_back(static_cast<double>(ticks(reference.end) - ticks(span.end)));
    }
  }
  for (std::size_t r = 1; r < trace.ranks.size(); ++r) {
    RankTrace& rank = trace.ranks[r];
    if (distance[r].empty()) {
      continue;
    }
    const auto offset = static_cast<std::int64_t>(median_of(distance[r]));
    std::vector<double> residual;
    for (const double d : distance[r]) {
      residual.push_back(std::abs(d - static_cast<double>(offset)));
    }
    rank.clock_offset = SimTime{offset};
    rank.clock_residual = Seconds(median_of(residual) * 1e-12);
    const auto shift = [offset](SimTime& t) { t = SimTime{ticks(t) + offset}; };
    for (OpSpan& s : rank.ops) {
      shift(s.issued), shift(s.begin), shift(s.ready), shift(s.end);
    }
    for (HostSpan& s : rank.host) {
      shift(s.begin), shift(s.end);
    }
    for (StepMark& s : rank.steps) {
      shift(s.begin), shift(s.end);
    }
  }
  for (const auto& [id, members] : instances) {
    SimTime last{};
    for (const Member& m : members) {
      last = std::max(last, trace.ranks[m.rank_index].ops[m.span_index].begin);
    }
    for (const Member& m : members) {
      OpSpan& span = trace.ranks[m.rank_index].ops[m.span_index];
      span.ready = std::clamp(last, span.begin, span.end);
    }
  }
}

std::vector<OpSamples> samples_of(const GraphRun& trace, std::int32_t rank, std::int32_t skip) {
  const RankTrace* found = nullptr;
  for (const RankTrace& r : trace.ranks) {
    found = r.rank == rank ? &r : found;
  }
  if (found == nullptr) {
    return {};
  }
  const Program& program = trace.graph.program_of(rank);
  std::vector<std::size_t> first(program.calls.size() + 1, 0);
  for (std::size_t c = 0; c < program.calls.size(); ++c) {
    first[c + 1] = first[c] + program.segments[program.calls[c].segment].op_count;
  }
  std::vector<OpSamples> samples(first.back());
  for (std::uint32_t c = 0; c < program.calls.size(); ++c) {
    const Segment& segment = program.segments[program.calls[c].segment];
    for (std::uint32_t o = 0; o < segment.op_count; ++o) {
      samples[first[c] + o].ref = {c, segment.first_op + o};
    }
  }
  for (const OpSpan& span : found->ops) {
    if (span.step < skip || span.ref.call >= program.calls.size()) {
      continue;
    }
    const Segment& segment = program.segments[program.calls[span.ref.call].segment];
    OpSamples& s = samples[first[span.ref.call] + (span.ref.op - segment.first_op)];
    s.seconds.push_back(to_seconds(SimTime{ticks(span.end) - ticks(span.ready)}).base());
  }
  return samples;
}

std::vector<double> step_seconds(const GraphRun& trace, std::int32_t skip) {
  std::map<std::int32_t, std::pair<SimTime, SimTime>> steps;
  for (const RankTrace& rank : trace.ranks) {
    for (const StepMark& s : rank.steps) {
      if (s.step < skip) {
        continue;
      }
      const auto [it, fresh] = steps.try_emplace(s.step, s.begin, s.end);
      if (!fresh) {
        it->second.first = std::min(it->second.first, s.begin);
        it->second.second = std::max(it->second.second, s.end);
      }
    }
  }
  std::vector<double> seconds;
  for (const auto& [step, bounds] : steps) {
    seconds.push_back(to_seconds(SimTime{ticks(bounds.second) - ticks(bounds.first)}).base());
  }
  return seconds;
}

}  // namespace stepcast::traces
