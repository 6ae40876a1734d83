#pragma once
#include "core/graph/program_fwd.h"
#include "workloads/passes/graph_pass.h"

namespace stepcast::workloads {

/// Makes one op of a product and the bias or activation next to it with nothing between,
/// where a library has an epilogue for it (core/graph/epilogue.h):
///
///   product; y = act(y + bias)                  act none or ReLU
///   product; dx = dx * relu'(y), column sums    y made by a product fused as above; it then keeps
///                                               a mask of the positive numbers
///   column sums of dy; weight gradient of dy
///   product; y = gelu(x + bias)                 x keeps the sum, so whatever else reads it must be
///                                               fused too
///   product; dx = dy * gelu'(x + bias), sums    also with ops between that have nothing to do with
///                                               one of the two
///
/// The op keeps the product's name and shape; the pass over memory that the other op was is gone,
/// with the tensors that nothing reads any more. Not fused: products in fp8 and block formats,
/// batches of products, products that add to what is there before an activation, ops with an event
/// between them.
void fuse_epilogues(ExecutionGraph& graph);
GraphPass fuse_epilogues_pass();

}  // namespace stepcast::workloads
