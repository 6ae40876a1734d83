#pragma once
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// Overlaps the exchanges of a pass with its own compute and that of the passes until its like
/// comes next, of another micro-batch, which awaits them (Overlap::expert_batch): forward and
/// backward in turn take what the longer of their compute and their exchanges takes. First passes,
/// which overlap with no other, are taken as hidden by their own compute. Exchanges of what is
/// computed again are awaited where they are. Source: DeepSeek-AI, arXiv 2412.19437, section 3.2.1.
GraphPass hide_exchanges_pass();

}  // namespace stepcast::workloads
