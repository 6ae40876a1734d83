#pragma once
#include "core/graph/program.h"
#include "core/job/job.h"
#include "workloads/build_graph.h"

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
/// query, key and value columns of its heads side by side, and gate before up. Weights and
/// gradients are views of buckets (StageParameters). Operands of the transformer's own ops are
/// listed where they are executed, in runtime/cpu/ops_transformer.cpp.
///
/// With an overlap the transfers have a stream each: "tensor" (the gather of a layer's input and
/// the sum of its input gradient beside the weight gradient), "data" (buckets beside the last
/// micro-batch's backward pass), "forward" and "backward" (along the pipeline). A communicator
/// belongs to one stream.
/// Errors: InputError, see transformer_shape.
ExecutionGraph build_transformer(const Job& job);

/// FLOPs of the graph's own matrix products and attention cores, re-scaled to each convention:
/// attention over the full score matrix (half for model_causal); hardware adds recomputed ops and
/// the scores that a fused attention backward makes again.
StepFlops transformer_flops(const Job& job);

}  // namespace stepcast::workloads
