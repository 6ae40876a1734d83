#pragma once
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// Puts parameters and gradients into buckets, sums gradients over the replicas, shards states,
/// gradients and weights as ZeRO does (parallel.zero), and updates the weights
/// (workloads/passes/parameter_buckets.h).
///
/// A unit's weights are gathered before a segment first uses them, with overlap.data while the unit
/// before is at work; gradients of a bucket are exchanged after the last op that adds to them. What
/// only the first forward pass of a step does, or the last backward pass, is a segment of its own.
/// Gradients are zeroed at the start of a step; at its end come sums that are left and the update.
/// Not run, a step has neither and each parameter is stored whole, by itself.
///
/// A builder declares each parameter as a weight and a gradient (DeclaredParameter), says where
/// units are used (OpWriter::uses_weights, adds_gradients), and which ranks hold the same
/// parameters (GraphUnderConstruction::holders).
GraphPass shard_parameters_pass();

}  // namespace stepcast::workloads
