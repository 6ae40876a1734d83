// Layers of models given as lists (core/job/layers.h).
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

void mean_rows_work(const OpTraits& traits, Op& op) {
  const double rows = extent(op, 0) * extent(op, 1) * element_bytes(op);
  const double means = rows / std::max(1.0, extent(op, 2));
  const bool backward = traits.pass == OpPass::kBackward;
  op.flops = Flops(extent(op, 0) * extent(op, 1));
  op.bytes_read = Bytes(backward ? means : rows);
  op.bytes_written = Bytes(backward ? rows : means);
}

}  // namespace

std::span<const OpTraits> layer_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kTranspose,
                                        .name = "transpose",
                                        .kernel = KernelKind::kLayoutChange,
                                        .work = row_wise_work,
                                        .per_element = {1, 1, 0}},
                               OpTraits{.kind = OpKind::kMultiplyForward,
                                        .name = "multiply_forward",
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kMultiplyBackward,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 1}},
                               OpTraits{.kind = OpKind::kMultiplyBackward,
                                        .name = "multiply_backward",
                                        .pass = OpPass::kBackward,
                                        .work = row_wise_work,
                                        .per_element = {3, 2, 2}},
                               OpTraits{.kind = OpKind::kSoftmaxForward,
                                        .name = "softmax_forward",
                                        .kernel = KernelKind::kSoftmax,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kSoftmaxBackward,
                                        .work = row_wise_work,
                                        .per_element = {1, 1, 5}},
                               OpTraits{.kind = OpKind::kSoftmaxBackward,
                                        .name = "softmax_backward",
                                        .kernel = KernelKind::kSoftmax,
                                        .pass = OpPass::kBackward,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 4}},
                               OpTraits{.kind = OpKind::kMeanRowsForward,
                                        .name = "mean_rows_forward",
                                        .kernel = KernelKind::kReduction,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kMeanRowsBackward,
                                        .work = mean_rows_work},
                               OpTraits{.kind = OpKind::kMeanRowsBackward,
                                        .name = "mean_rows_backward",
                                        .kernel = KernelKind::kReduction,
                                        .pass = OpPass::kBackward,
                                        .work = mean_rows_work},
                               OpTraits{.kind = OpKind::kModulateForward,
                                        .name = "modulate_forward",
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kModulateBackward,
                                        .work = row_wise_work,
                                        .per_element = {1, 1, 2}},
                               OpTraits{.kind = OpKind::kModulateBackward,
                                        .name = "modulate_backward",
                                        .pass = OpPass::kBackward,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 4}},
                               OpTraits{.kind = OpKind::kGateForward,
                                        .name = "gate_forward",
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kGateBackward,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 2}},
                               OpTraits{.kind = OpKind::kGateBackward,
                                        .name = "gate_backward",
                                        .pass = OpPass::kBackward,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 3}}};
  return rows;
}

}  // namespace stepcast
