// Matrix products: GEMM, pairwise dots of features, convolutions.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// Bytes an epilogue moves in addition to the product: a row of bias or of its gradient (fp32), a
/// mask, and the input of a GELU.
void add_epilogue(Op& op, double e) {
  const Epilogue epilogue = op.as<GemmAttributes>().epilogue;
  const double rows = extent(op, 0);
  const double columns = extent(op, 1);
  const Bytes mask(rows * 4 * static_cast<double>(mask_words(op.shape[1])));
  if (adds_bias(epilogue)) {
    op.bytes_read += Bytes(columns * e);
  }
  if (sums_columns(epilogue)) {
    op.bytes_written += Bytes(columns * 4);
  }
  if (epilogue == Epilogue::kBiasReluMask) {
    op.bytes_written += mask;
  } else if (epilogue == Epilogue::kReluBackward) {
    op.bytes_read += mask;
  } else if (keeps_gelu_input(epilogue)) {
    op.bytes_written += Bytes(rows * columns * e);
  } else if (reads_gelu_input(epilogue)) {
    op.bytes_read += Bytes(rows * columns * e);
  }
}

void gemm_work(const OpTraits&, Op& op) {
  const double e = element_bytes(op);
  const double m = extent(op, 0);
  const double n = extent(op, 1);
  const double k = extent(op, 2);
  const double batch = std::max(1.0, extent(op, 3));
  const bool accumulate = (op.flags & op_flags::kAccumulate) != 0;
  op.flops = Flops(2 * m * n * k * batch);
  op.bytes_read = Bytes(batch * (m * k + k * n + (accumulate ? m * n : 0)) * e);
  op.bytes_written = Bytes(batch * m * n * e);
  add_epilogue(op, e);
}

/// F vectors of width D per sample: F (F - 1) / 2 dots of 2 D FLOPs; the backward runs each dot's
/// gradient into both vectors.
void dot_interaction_work(const OpTraits& traits, Op& op) {
  const double e = element_bytes(op);
  const double pairs = extent(op, 1) * (extent(op, 1) - 1) / 2;
  const double inputs = extent(op, 0) * extent(op, 1) * extent(op, 2);
  const double outputs = extent(op, 0) * (pairs + extent(op, 2));
  const bool backward = traits.pass == OpPass::kBackward;
  op.flops = Flops((backward ? 2 : 1) * 2 * extent(op, 0) * pairs * extent(op, 2));
  op.bytes_read = Bytes((inputs + (backward ? outputs : 0)) * e);
  op.bytes_written = Bytes((backward ? inputs : outputs) * e);
}

/// Bytes are set by the builder: they follow from strides.
void convolution_work(const OpTraits&, Op& op) {
  op.flops = Flops(2 * extent(op, 0) * extent(op, 1) * extent(op, 2));
}

}  // namespace

std::span<const OpTraits> gemm_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kGemm,
                                        .name = "gemm",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kGemm,
                                        .attributes = GemmAttributes{},
                                        .main = {0, 1, 3, -1},
                                        .work = gemm_work,
                                        .fitted_routed = "grouped_gemm"},
                               OpTraits{.kind = OpKind::kDotInteractionForward,
                                        .name = "dot_interaction_forward",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kGemm,
                                        .family = OpFamily::kDotInteraction,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kDotInteractionBackward,
                                        .main = {0, 1, 2, -1},
                                        .work = dot_interaction_work},
                               OpTraits{.kind = OpKind::kDotInteractionBackward,
                                        .name = "dot_interaction_backward",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kGemm,
                                        .family = OpFamily::kDotInteraction,
                                        .pass = OpPass::kBackward,
                                        .main = {0, 1, 2, -1},
                                        .work = dot_interaction_work},
                               OpTraits{.kind = OpKind::kConvolutionForward,
                                        .name = "convolution_forward",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kConvolution,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kConvolutionInputGradient,
                                        .work = convolution_work},
                               OpTraits{.kind = OpKind::kConvolutionInputGradient,
                                        .name = "convolution_input_gradient",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kConvolution,
                                        .pass = OpPass::kBackward,
                                        .work = convolution_work},
                               OpTraits{.kind = OpKind::kConvolutionWeightGradient,
                                        .name = "convolution_weight_gradient",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kConvolution,
                                        .pass = OpPass::kBackward,
                                        .work = convolution_work}};
  return rows;
}

}  // namespace stepcast
