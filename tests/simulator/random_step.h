#pragma once
// Random but legal steps: all programs meet in the same order of collectives, so none can deadlock.
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulator/graphs.h"

namespace stepcast::simulator::test {

struct RandomStep {
  ExecutionGraph graph;
  StepCosts costs;
};

/// `mode`: 0 plain, 1 slowdown, 2 shared core with paced transfers, 3 shared core that transfers
/// hold.
inline RandomStep random_step(std::uint32_t seed, int mode, bool unfold = false) {
  std::mt19937 engine(seed);
  const auto upto = [&](int n) { return static_cast<int>(engine() % static_cast<unsigned>(n)); };
  const int programs = 1 + upto(3);
  const int alike_ranks = 1 + upto(3);
  const std::vector<std::string> streams{"compute", "one", "two"};
  const std::int32_t ranks = programs * alike_ranks;

  struct Slot {
    OpKind kind;
    int stream;
    int communicator;
    int from, to;
    int tag;
  };
  // A common skeleton of collectives, by segment.
  std::vector<std::vector<Slot>> skeleton(2);
  for (int s = 0; s < 2; ++s) {
    auto& segment = skeleton[static_cast<std::size_t>(s)];
    const int n = 1 + upto(5);
    for (int k = 0; k < n; ++k) {
      const OpKind kinds[] = {OpKind::kAllReduce, OpKind::kAllToAllV, OpKind::kBroadcast,
                              OpKind::kSend};
      segment.push_back(
          {kinds[upto(4)], upto(3), upto(2), upto(programs), upto(programs), s * 100 + k});
    }
  }
  std::vector<Program> built;
  for (int p = 0; p < programs; ++p) {
    ProgramBuilder b(streams);
    b.set_microbatches(3);
    std::vector<std::int32_t> events;
    for (int s = 0; s < 2; ++s) {
      b.begin_segment("segment");
      const auto work = [&](int n) {
        for (int k = 0; k < n; ++k) {
          auto op = compute(b, "work", streams[static_cast<std::size_t>(upto(3))]);
          if (!events.empty() && upto(3) == 0) {
            op.waits(events[static_cast<std::size_t>(upto(static_cast<int>(events.size())))]);
          }
          if (upto(3) == 0) {
            events.push_back(b.event());
            op.records(events.back());
          }
        }
      };
      work(upto(6));
      for (const Slot& slot : skeleton[static_cast<std::size_t>(s)]) {
        const std::string& stream = streams[static_cast<std::size_t>(slot.stream)];
        if (slot.kind == OpKind::kSend) {
          // Position of program q in a pipeline group is q.
          if (slot.from != slot.to && p == slot.from) {
            b.op(OpKind::kSend, "send", {1, slot.tag}).on(stream).communicator(2, slot.to);
          } else if (slot.from != slot.to && p == slot.to) {
            b.op(OpKind::kRecv, "recv", {1, slot.tag}).on(stream).communicator(2, slot.from);
          }
        } else {
          talk(b, slot.kind, "talk", slot.communicator, stream, 0);
        }
        work(upto(4));
      }
      b.end_segment();
    }
    for (int m = 0; m < 3; ++m) {
      b.call(0, m);
      b.call(1, m);
    }
    built.push_back(std::move(b).finish());
  }
  RandomStep step;
  ExecutionGraph& g = step.graph;
  g.mesh.pipeline = programs;
  g.mesh.data = alike_ranks;
  g.communicators = {{"world", {Axis::kPipeline, Axis::kData}, {}},
                     {"pipe", {Axis::kPipeline}, {}},
                     {"p2p", {Axis::kPipeline}, {}}};
  g.programs = std::move(built);
  for (std::int32_t p = 0; p < programs; ++p) {
    g.classes.push_back({p, {}});
    for (std::int32_t r = p; r < ranks; r += programs) {
      g.classes.back().ranks.push_back(r);
    }
  }
  StepCosts& c = step.costs;
  c = blank_costs(g, unfold);
  // Costs depend on the program alone, so that folded and unfolded runs have the same.
  std::vector<std::vector<std::int64_t>> ticks_of;
  std::vector<std::vector<float>> share_of;
  for (const Program& program : g.programs) {
    auto& row = ticks_of.emplace_back();
    auto& shares = share_of.emplace_back();
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      row.push_back(upto(8) == 0 ? 0 : upto(1000));
      shares.push_back(static_cast<float>(1 + upto(4)) / 4.0F);
    }
  }
  for (std::size_t i = 0; i < c.ops.size(); ++i) {
    const auto p = static_cast<std::size_t>(c.folding.instances[i].program);
    c.ops[i].ticks = ticks_of[p];
    c.ops[i].link_share = share_of[p];
  }
  c.issue = upto(3) * 20;
  c.dispatch = upto(3) * 7;
  c.step = upto(2) * 500;
  c.queue_depth = upto(2) == 0 ? 1000 : 1 + upto(6);
  c.slowdown = mode == 1 ? 1.25 : 1;
  c.shares_core = mode >= 2;
  c.collectives_hold_core = mode == 3;
  return step;
}

}  // namespace stepcast::simulator::test
