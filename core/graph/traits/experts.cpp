// Copies of tokens and their experts.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// Forward: softmax over all experts, then the choice: weight and id of each copy. Backward reads
/// the probabilities and the gradients of the weights. All in fp32.
void route_work(const OpTraits& traits, Op& op) {
  const double logits = 4 * extent(op, 0) * extent(op, 1);
  const double chosen = 8 * extent(op, 0) * extent(op, 2);
  const bool backward = traits.pass == OpPass::kBackward;
  op.flops = Flops(5 * extent(op, 0) * extent(op, 1));
  op.bytes_read = Bytes(logits + (backward ? chosen : 0));
  op.bytes_written = Bytes(logits + (backward ? 0 : chosen));
}

/// A copy's row, its place, the row again.
void dispatch_work(const OpTraits&, Op& op) {
  const double e = element_bytes(op);
  op.bytes_read = Bytes(extent(op, 0) * (extent(op, 1) * e + 4));
  op.bytes_written = Bytes(extent(op, 0) * extent(op, 1) * e);
}

/// Sums of rows' copies.
void combine_work(const OpTraits&, Op& op) {
  const double e = element_bytes(op);
  op.flops = Flops(2 * extent(op, 2) * extent(op, 1));
  op.bytes_read = Bytes(extent(op, 2) * (extent(op, 1) * e + 8));
  op.bytes_written = Bytes(extent(op, 0) * extent(op, 1) * e);
}

/// The row's gradient and the copy, for the weight's gradient.
void combine_backward_work(const OpTraits&, Op& op) {
  const double e = element_bytes(op);
  op.flops = Flops(3 * extent(op, 0) * extent(op, 1));
  op.bytes_read = Bytes(extent(op, 0) * (2 * extent(op, 1) * e + 8));
  op.bytes_written = Bytes(extent(op, 0) * (extent(op, 1) * e + 4));
}

}  // namespace

std::span<const OpTraits> expert_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kRouteForward,
                                        .name = "route_forward",
                                        .kernel = KernelKind::kOther,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kRouteBackward,
                                        .work = route_work},
                               OpTraits{.kind = OpKind::kRouteBackward,
                                        .name = "route_backward",
                                        .kernel = KernelKind::kOther,
                                        .pass = OpPass::kBackward,
                                        .work = route_work},
                               OpTraits{.kind = OpKind::kDispatchForward,
                                        .name = "dispatch_forward",
                                        .kernel = KernelKind::kLayoutChange,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kDispatchBackward,
                                        .attributes = DispatchAttributes{},
                                        .work = dispatch_work},
                               OpTraits{.kind = OpKind::kDispatchBackward,
                                        .name = "dispatch_backward",
                                        .kernel = KernelKind::kLayoutChange,
                                        .pass = OpPass::kBackward,
                                        .work = combine_work},
                               OpTraits{.kind = OpKind::kCombineForward,
                                        .name = "combine_forward",
                                        .kernel = KernelKind::kLayoutChange,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kCombineBackward,
                                        .work = combine_work},
                               OpTraits{.kind = OpKind::kCombineBackward,
                                        .name = "combine_backward",
                                        .kernel = KernelKind::kLayoutChange,
                                        .pass = OpPass::kBackward,
                                        .work = combine_backward_work}};
  return rows;
}

}  // namespace stepcast
