#pragma once
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// Keeps in the memory of the host what a layer keeps for its backward pass (offload.activations):
/// of each micro-batch, after recomputation has decided what that is.
///
/// Once the forward pass of a layer is done its values leave over the device's link; the backward
/// pass fetches those of the layer that comes next while it works on one. On the device layers use
/// two sets of buffers in turn: a layer starts when the values of the layer but one before it have
/// left. What the head, messages or several segments of a pass read stays on the device.
/// Source: Ren et al., arXiv 2101.06840 (transfers beside compute); Rhu et al., arXiv 1602.08124.
GraphPass offload_activations_pass();

}  // namespace stepcast::workloads
