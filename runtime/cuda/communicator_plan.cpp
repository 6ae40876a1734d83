#include "runtime/cuda/communicator_plan.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/graph/op_traits.h"

namespace stepcast::runtime::cuda {
namespace {

/// All groups of a communicator, by first member.
SplitRound groups_of(const ExecutionGraph& graph, std::int32_t communicator) {
  std::set<std::vector<std::int32_t>> groups;
  for (std::int32_t rank = 0; rank < graph.ranks(); ++rank) {
    auto members = graph.members(communicator, rank);
    if (!members.empty()) {
      groups.insert(std::move(members));
    }
  }
  return {{groups.begin(), groups.end()}};
}

void collect_pairs(const ExecutionGraph& graph, std::int32_t rank, const Op& op,
                   std::set<CommunicatorPlan::Pair>& pairs) {
  const auto members = graph.members(op.communicator, rank);
  const std::int32_t peer = members.at(static_cast<std::size_t>(op.peer));
  const bool sends = op.kind == OpKind::kSend;
  pairs.insert({op.communicator, sends ? rank : peer, sends ? peer : rank, 0});
}

/// Puts each pair into the first round in which both its ranks are free.
void place_pairs(CommunicatorPlan& plan) {
  const std::size_t first = plan.rounds.size();
  std::vector<std::set<std::int32_t>> busy;
  for (CommunicatorPlan::Pair& pair : plan.pairs) {
    std::size_t round = 0;
    while (round < busy.size() &&
           (busy[round].count(pair.sender) != 0 || busy[round].count(pair.receiver) != 0)) {
      ++round;
    }
    if (round == busy.size()) {
      busy.emplace_back();
      plan.rounds.emplace_back();
    }
    busy[round].insert({pair.sender, pair.receiver});
    pair.round = first + round;
    plan.rounds[pair.round].groups.push_back({pair.sender, pair.receiver});
  }
}

}  // namespace

CommunicatorPlan communicator_plan(const ExecutionGraph& graph) {
  CommunicatorPlan plan;
  std::vector<bool> collective(graph.communicators.size(), false);
  std::set<CommunicatorPlan::Pair> pairs;
  for (const RankClass& c : graph.classes) {
    const Program& program = graph.programs.at(static_cast<std::size_t>(c.program));
    for (const Op& op : program.ops) {
      if (op.communicator < 0) {
        continue;
      }
      if (is_point_to_point(op.kind)) {
        for (const std::int32_t rank : c.ranks) {
          collect_pairs(graph, rank, op, pairs);
        }
      } else {
        collective.at(static_cast<std::size_t>(op.communicator)) = true;
      }
    }
  }
  for (std::size_t c = 0; c < collective.size(); ++c) {
    plan.round_of.push_back(collective[c] ? static_cast<std::int32_t>(plan.rounds.size()) : -1);
    if (collective[c]) {
      plan.rounds.push_back(groups_of(graph, static_cast<std::int32_t>(c)));
    }
  }
  plan.pairs.assign(pairs.begin(), pairs.end());
  for (const CommunicatorPlan::Pair& pair : plan.pairs) {
    STEPCAST_CHECK(pair.sender != pair.receiver, "rank {} sends to itself", pair.sender);
  }
  place_pairs(plan);
  return plan;
}

Split split_of(const SplitRound& round, std::int32_t rank) {
  for (const auto& group : round.groups) {
    const auto found = std::find(group.begin(), group.end(), rank);
    if (found != group.end()) {
      return {group.front(), static_cast<int>(found - group.begin())};
    }
  }
  return {};
}

}  // namespace stepcast::runtime::cuda
