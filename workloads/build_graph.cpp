#include "workloads/build_graph.h"

#include "workloads/dlrm/dlrm.h"
#include "workloads/passes/fuse_epilogues.h"
#include "workloads/transformer/transformer.h"

namespace stepcast::workloads {

ExecutionGraph build_graph(const Job& job) {
  ExecutionGraph graph =
      job.workload.transformer() != nullptr ? build_transformer(job) : build_dlrm(job);
  if (job.fused_epilogues) {
    fuse_epilogues(graph);
  }
  return graph;
}

StepFlops step_flops(const Job& job) {
  return job.workload.transformer() != nullptr ? transformer_flops(job) : dlrm_flops(job);
}

}  // namespace stepcast::workloads
