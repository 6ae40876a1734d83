#include "studies/traces/recorded_graph.h"

#include "core/error.h"
#include "core/graph/op_codes.h"
#include "workloads/build_graph.h"

namespace stepcast::studies {
namespace {

/// What traces recorded before packed ids were told apart hold of them is the rest of the shape.
bool same_shape(const Op& ran, const Op& predicted) {
  OpCodes expected = codes_of(predicted);
  if (ran.kind == OpKind::kIndexPack && ran.shape[3] == 0) {
    expected.sizes[3] = 0;
  }
  return codes_of(ran).sizes == expected.sizes;
}

void require_same_graph(const ExecutionGraph& ran, const ExecutionGraph& predicted) {
  const auto differ = [](const std::string& what) {
    throw InputError("trace", "was recorded from another job: " + what +
                                  "; compare it with the job it was recorded from");
  };
  if (ran.ranks() != predicted.ranks()) {
    differ(fmt::format("{} ranks ran, the job has {}", ran.ranks(), predicted.ranks()));
  }
  for (std::int32_t r = 0; r < ran.ranks(); ++r) {
    const Program& a = ran.program_of(r);
    const Program& b = predicted.program_of(r);
    if (a.ops.size() != b.ops.size() || a.calls.size() != b.calls.size()) {
      differ(fmt::format("rank {} ran {} ops in {} calls, the job has {} in {}", r, a.ops.size(),
                         a.calls.size(), b.ops.size(), b.calls.size()));
    }
    for (std::size_t o = 0; o < a.ops.size(); ++o) {
      if (a.ops[o].kind != b.ops[o].kind || !same_shape(a.ops[o], b.ops[o])) {
        differ(fmt::format("op {} '{}' of rank {} differs", o, a.name(a.ops[o]), r));
      }
    }
  }
}

}  // namespace

ExecutionGraph rebuilt_graph(const traces::Trace& trace, const Job& job) {
  ExecutionGraph graph = workloads::build_graph(job);
  require_same_graph(trace.graph, graph);
  return graph;
}

}  // namespace stepcast::studies
