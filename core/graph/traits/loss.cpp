// Losses and the gradients of what they read.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// Forward and backward variables over 2 labels + 1 states of each frame, in fp32.
void connectionist_work(const OpTraits&, Op& op) {
  const double e = element_bytes(op);
  const double states = extent(op, 0) * (2 * extent(op, 2) + 1);
  op.flops = Flops(8 * states + 3 * extent(op, 0) * extent(op, 1));
  op.bytes_read = Bytes(extent(op, 0) * extent(op, 1) * e + 8 * states);
  op.bytes_written = Bytes(extent(op, 0) * extent(op, 1) * e + 8 * states);
}

}  // namespace

std::span<const OpTraits> loss_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kCrossEntropyMax,
                                        .name = "cross_entropy_max",
                                        .kernel = KernelKind::kSoftmax,
                                        .family = OpFamily::kCrossEntropy,
                                        .work = row_wise_work,
                                        .per_element = {1, 0, 1}},
                               OpTraits{.kind = OpKind::kCrossEntropySum,
                                        .name = "cross_entropy_sum",
                                        .kernel = KernelKind::kSoftmax,
                                        .family = OpFamily::kCrossEntropy,
                                        .work = row_wise_work,
                                        .per_element = {1, 0, 2}},
                               OpTraits{.kind = OpKind::kCrossEntropyLoss,
                                        .name = "cross_entropy_loss",
                                        .kernel = KernelKind::kSoftmax,
                                        .family = OpFamily::kCrossEntropy,
                                        .work = row_wise_work,
                                        .per_element = {1, 1, 3}},
                               OpTraits{.kind = OpKind::kBinaryCrossEntropy,
                                        .name = "binary_cross_entropy",
                                        .kernel = KernelKind::kReduction,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 8}},
                               OpTraits{.kind = OpKind::kMeanSquaredError,
                                        .name = "mean_squared_error",
                                        .kernel = KernelKind::kReduction,
                                        .work = row_wise_work,
                                        .per_element = {2, 1, 4}},
                               OpTraits{.kind = OpKind::kConnectionistLoss,
                                        .name = "connectionist_loss",
                                        .kernel = KernelKind::kReduction,
                                        .work = connectionist_work}};
  return rows;
}

}  // namespace stepcast
