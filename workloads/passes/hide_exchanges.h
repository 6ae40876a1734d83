#pragma once
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// True if exchanges of experts' tokens are to run beside another micro-batch (Overlap::
/// expert_batch), so that a forward pass stands before the backward of another micro-batch.
bool pairs_passes(const Job& job);

/// Hides the exchanges of a forward pass and of the backward of another micro-batch behind the
/// compute of both: neither awaits its own; the next pair does. A pass without a partner, at the
/// beginning or the end of the step, awaits each, and so does what is computed again. Source:
/// Megatron-Core, combined 1F1B; DeepSeek-AI, arXiv 2412.19437, section 3.2.1.
GraphPass hide_exchanges_pass();

}  // namespace stepcast::workloads
