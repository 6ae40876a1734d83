#include "workloads/build_graph.h"

#include <utility>

#include "workloads/dlrm/dlrm.h"
#include "workloads/passes/graph_pass.h"
#include "workloads/transformer/transformer.h"

namespace stepcast::workloads {
namespace {

ExecutionGraph built(const Job& job, const PassOptions& options) {
  GraphUnderConstruction draft =
      job.workload.transformer() != nullptr ? build_transformer(job) : build_layered(job);
  run_passes(draft, job, options);
  return std::move(draft.graph);
}

}  // namespace

ExecutionGraph build_graph(const Job& job) { return built(job, {}); }

ExecutionGraph build_passes(const Job& job) {
  return built(job, {.off = {"shard_parameters"}, .replace = false});
}

StepFlops step_flops(const Job& job, const ExecutionGraph* graph) {
  return job.workload.transformer() != nullptr ? transformer_flops(job, graph) : layered_flops(job);
}

}  // namespace stepcast::workloads
