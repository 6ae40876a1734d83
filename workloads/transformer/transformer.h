#pragma once
#include "core/job/job.h"
#include "workloads/build_graph.h"
#include "workloads/passes/draft.h"

namespace stepcast::workloads {

/// The execution graph of a dense decoder-only transformer: one program per pipeline stage; what
/// differs between tensor and data ranks (slices of parameters, vocabulary rows, optimizer shards)
/// follows from the rank's mesh coordinates. Every plan of one model starts from the same numbers
/// and computes the same step.
///
/// Samples are numbered in the order of data replicas, then micro-batches: replica r trains on
/// samples [r, r + 1) * global / data. Gradients are those of the mean loss over all tokens of the
/// global batch, so sums over micro-batches and replicas need no scaling.
///
/// Weights are [in, out]; the embedding and the head [vocabulary, hidden]. Each rank holds the
/// query, key and value columns of its heads side by side, and gate before up. Each
/// parameter is a weight and a gradient of their own: buckets, exchange between replicas and update
/// come later (workloads/passes/shard_parameters.h). Operands of the transformer's own ops are
/// listed where they are executed, in runtime/cpu/ops_transformer.cpp.
///
/// Ops are in order, without streams and events: GraphUnderConstruction::orders says which are
/// transfers and what awaits them. A communicator belongs to one lane.
/// Errors: InputError, see transformer_shape.
GraphUnderConstruction build_transformer(const Job& job);

/// FLOPs of the graph's own matrix products and attention cores, re-scaled to each convention:
/// attention over the full score matrix (half for model_causal); hardware adds recomputed ops and
/// the scores that a fused attention backward makes again. `graph`: the job's own, where it is
/// built.
StepFlops transformer_flops(const Job& job, const ExecutionGraph* graph = nullptr);

}  // namespace stepcast::workloads
