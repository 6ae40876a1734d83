#pragma once
// Small hand-made execution graphs and costs for the simulator's tests.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/graph/program_builder.h"
#include "simulator/random.h"
#include "simulator/simulate.h"

namespace stepcast::simulator::test {

/// Adds an op that computes; its cost is set in the costs, not by its shape.
inline ProgramBuilder::OpEdit compute(ProgramBuilder& b, const std::string& name,
                                      const std::string& stream = "compute") {
  return b.op(OpKind::kFill, name, {1}).on(stream);
}
inline ProgramBuilder::OpEdit talk(ProgramBuilder& b, OpKind kind, const std::string& name,
                                   std::int32_t communicator = 0,
                                   const std::string& stream = "compute", std::int32_t peer = -1) {
  return b.op(kind, name, {1}).on(stream).communicator(communicator, peer);
}

/// A mesh of `ranks` data-parallel ranks with one communicator over all of them.
inline ExecutionGraph world(std::int32_t ranks) {
  ExecutionGraph graph;
  graph.mesh.data = ranks;
  graph.communicators.push_back({"world", {Axis::kData}, {}});
  return graph;
}
/// All ranks run the same program.
inline ExecutionGraph alike(std::int32_t ranks, Program program) {
  ExecutionGraph graph = world(ranks);
  graph.programs.push_back(std::move(program));
  graph.classes.push_back({0, {}});
  for (std::int32_t r = 0; r < ranks; ++r) {
    graph.classes[0].ranks.push_back(r);
  }
  return graph;
}
/// Text that `write` writes, called once.
template <class Write>
Program called_once(Write write) {
  ProgramBuilder b;
  const auto s = b.begin_segment("all");
  write(b);
  b.end_segment();
  b.call(s);
  return std::move(b).finish();
}
/// Rank r runs program r.
inline ExecutionGraph each(std::vector<Program> programs) {
  ExecutionGraph graph = world(static_cast<std::int32_t>(programs.size()));
  for (std::int32_t r = 0; r < graph.ranks(); ++r) {
    graph.classes.push_back({r, {r}});
  }
  graph.programs = std::move(programs);
  return graph;
}
/// Sets the cost of every op of a name, on every instance.
inline void set_cost(const ExecutionGraph& graph, StepCosts& costs, const std::string& name,
                     std::int64_t ticks) {
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const Program& program =
        graph.programs[static_cast<std::size_t>(costs.folding.instances[i].program)];
    for (std::size_t o = 0; o < program.ops.size(); ++o) {
      if (program.name(program.ops[o]) == name) {
        costs.ops[i].ticks[o] = ticks;
      }
    }
  }
}
/// Sets the cost on one instance.
inline void set_cost_of(const ExecutionGraph& graph, StepCosts& costs, std::size_t instance,
                        const std::string& name, std::int64_t ticks) {
  const Program& program =
      graph.programs[static_cast<std::size_t>(costs.folding.instances[instance].program)];
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    if (program.name(program.ops[o]) == name) {
      costs.ops[instance].ticks[o] = ticks;
    }
  }
}
/// Random differences between ranks: every computing op takes
/// `ticks * (1 + sigma * (sqrt(rho) * z + sqrt(1 - rho) * z_rank))`, z standard normal.
inline void jitter(const ExecutionGraph& graph, StepCosts& costs, double sigma, double rho,
                   std::uint64_t seed) {
  for (std::size_t i = 0; i < costs.ops.size(); ++i) {
    const std::vector<Op>& ops = graph.program_of(static_cast<std::int32_t>(i)).ops;
    for (std::size_t o = 0; o < ops.size(); ++o) {
      const double z = std::sqrt(rho) * normal_at(seed, o, costs.ops.size()) +
                       std::sqrt(1 - rho) * normal_at(seed, o, i);
      std::int64_t& ticks = costs.ops[i].ticks[o];
      ticks = ops[o].communicator < 0 ? std::llround(static_cast<double>(ticks) * (1 + sigma * z))
                                      : ticks;
    }
  }
}

/// Keeps every span.
struct Recorder : Observer {
  std::vector<OpSpan> ops;
  std::vector<HostSpan> hosts;
  void on_op(const OpSpan& span) override { ops.push_back(span); }
  void on_host(const HostSpan& span) override { hosts.push_back(span); }
  [[nodiscard]] const OpSpan& of(std::int32_t rank, std::uint32_t op,
                                 std::uint32_t call = 0) const {
    for (const OpSpan& s : ops) {
      if (s.rank == rank && s.ref.op == op && s.ref.call == call) {
        return s;
      }
    }
    throw InternalError("no such span");
  }
};

inline std::int64_t makespan(const ExecutionGraph& graph, const StepCosts& costs,
                             const SimulationOptions& options = {}) {
  return ticks(simulate(graph, costs, options).makespan);
}

/// n computing ops on one stream.
inline ExecutionGraph chain(int n) {
  return alike(1, called_once([n](ProgramBuilder& b) {
                 for (int i = 0; i < n; ++i) {
                   compute(b, "op");
                 }
               }));
}

}  // namespace stepcast::simulator::test
