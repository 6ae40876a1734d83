#pragma once
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// Makes values of layers again in the backward pass instead of keeping them for each micro-batch
/// (parallel.recompute).
///
/// A part of a layer (LayerPart) that is recomputed has the ops of its forward pass once more where
/// the backward pass needs them, in phase `recompute`. What they made becomes a temporary that
/// layers use one after the other, unless something reads it in between. Norms, activations of
/// experts and what latent attention makes of compressed vectors discard their output; larger parts
/// what no op outside them reads. What a weight gradient reads that is made later is kept for it
/// from the backward pass on.
///
/// full, the first k layers: whole layers. selective: the parts that parallel.recompute.modules
/// names (Megatron-LM's --recompute-modules; Korthikanti et al., arXiv 2205.05198, section 5).
/// Where the stack chooses op by op (FrameworkTraits::selective_per_op) the forward pass keeps what
/// attention, every second matrix product, the sums over tensor ranks and the exchanges of experts'
/// tokens made; the rest of a layer is recomputed, up to the last value that its backward pass
/// reads. Products count in the order query, key, value, projection, fc1 (its gate first), fc2, in
/// latent attention query down and up, latent down and up, projection; the odd ones are kept. The
/// router and the experts' grouped products are none of them. Where matrices stand side by side the
/// columns of the others are recomputed.
/// Source: torchtitan at 004b3148, torchtitan/parallelisms/parallelize_llama.py, selective
/// activation checkpointing, option "op"; of later versions with experts
/// torchtitan/distributed/activation_checkpoint.py.
///
/// A builder has nothing to do with it but to say which ops are a part (OpWriter::part) and where
/// the backward pass needs it (OpWriter::needs).
GraphPass recompute_pass();

}  // namespace stepcast::workloads
