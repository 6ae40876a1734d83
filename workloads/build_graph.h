#pragma once
#include "core/graph/program_fwd.h"
#include "core/job/job.h"

namespace stepcast::workloads {

/// The execution graph of one training step of a job: the only description of a step in the
/// toolkit. Predicted by models and simulator, executed by the runtime, recovered from traces, all
/// with the same op ids. Errors: InputError when the job cannot be split as asked (heads over
/// ranks, tables over shards, ...), naming the job's path.
ExecutionGraph build_graph(const Job& job);
/// The passes of its micro-batches alone, where no weights are sharded: as in build_graph, but
/// neither are parameters stored in buckets, nor gradients exchanged, nor weights updated.
ExecutionGraph build_passes(const Job& job);

/// FLOPs of one training step over all devices, by convention (reference: llm.md section 1).
struct StepFlops {
  Flops model;         ///< full attention, no recompute (the `mfu` convention)
  Flops model_causal;  ///< causal attention at half
  Flops hardware;      ///< model + recomputation
};
/// `graph`: the job's own, where it is built.
StepFlops step_flops(const Job& job, const ExecutionGraph* graph = nullptr);

}  // namespace stepcast::workloads
