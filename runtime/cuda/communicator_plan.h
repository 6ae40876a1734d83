#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/program.h"

namespace stepcast::runtime::cuda {

/// One round of splitting all ranks into disjoint groups, each of which becomes one NCCL
/// communicator. All ranks work through the same rounds in the same order.
struct SplitRound {
  std::vector<std::vector<std::int32_t>> groups;
};

/// Which NCCL communicators a graph needs.
///
/// Collectives: one round per communicator of the graph that some rank's collectives use. Sends and
/// receives: NCCL works through the operations of one communicator one after the other, so a send
/// that waits for its receiver would hold back the receives behind it, and pipelines would
/// deadlock. Each pair (communicator, sender -> receiver) therefore has a communicator of its own,
/// of two ranks; pairs that share no rank are split off in one round.
struct CommunicatorPlan {
  struct Pair {
    std::int32_t communicator = 0;
    std::int32_t sender = 0;
    std::int32_t receiver = 0;
    std::size_t round = 0;
    auto operator<=>(const Pair&) const = default;
  };
  std::vector<SplitRound> rounds;
  std::vector<std::int32_t> round_of;  ///< by communicator of the graph; -1: not used
  std::vector<Pair> pairs;             ///< ascending
};
CommunicatorPlan communicator_plan(const ExecutionGraph& graph);

/// Arguments of one rank to ncclCommSplit in a round: color is the first member of its group, -1
/// without one; key its position there.
struct Split {
  int color = -1;
  int key = 0;
};
Split split_of(const SplitRound& round, std::int32_t rank);

}  // namespace stepcast::runtime::cuda
