#include "workloads/build_graph.h"

#include <utility>

#include "workloads/dlrm/dlrm.h"
#include "workloads/passes/graph_pass.h"
#include "workloads/transformer/transformer.h"

namespace stepcast::workloads {

ExecutionGraph build_graph(const Job& job) {
  GraphUnderConstruction draft =
      job.workload.transformer() != nullptr ? build_transformer(job) : build_layered(job);
  run_passes(draft, job);
  return std::move(draft.graph);
}

StepFlops step_flops(const Job& job, const ExecutionGraph* graph) {
  return job.workload.transformer() != nullptr ? transformer_flops(job, graph) : layered_flops(job);
}

}  // namespace stepcast::workloads
