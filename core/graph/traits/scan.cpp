// Mixers with a state of constant size (core/job/recurrent_mixer.h).
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// The chunked scan (Dao and Gu, arXiv 2405.21060, section 6; Yang et al., arXiv 2406.06484,
/// section 3). For each token of each head, with chunks of Q tokens, keys of K and values of V
/// columns, 2 FLOPs a pair:
///
///   decay   scores with the chunk QK (once for heads that share keys) and their product with the
///           values QV; the state written KV and read KV
///   delta   QK for the keys among themselves and with the queries, QK + QV for what the inverse of
///           the first is multiplied with, QV for the values; the state read twice and written 3 KV
///
/// The backward pass has two products for each of them, after it made scores and states again. The
/// triangular inverse and decays are left out. States are fp32, of one chunk in Q tokens: written,
/// then read and written as they are handed on, then read.
void scan_work(const OpTraits& traits, Op& op) {
  const double tokens = extent(op, 0);
  const double heads = extent(op, 1);
  const double key = extent(op, 2);
  const double value = extent(op, 3);
  const double shared = extent(op, 4);
  const double chunk = extent(op, 5);
  const ScanRule rule = op.as<ScanAttributes>().rule;
  const bool delta = rule != ScanRule::kDecay;
  const double made_again =
      delta ? heads * (2 * chunk * key + key * value) : shared * chunk * key + heads * key * value;
  const double pairs = delta ? heads * (3 * chunk * key + 2 * chunk * value + 3 * key * value)
                             : shared * chunk * key + heads * (chunk * value + 2 * key * value);
  const bool backward = traits.pass == OpPass::kBackward;
  op.flops = Flops(2 * tokens * (backward ? 2 * pairs + made_again : pairs));
  const double gates = rule == ScanRule::kDeltaByColumn ? heads + shared * key
                       : delta                          ? 2 * heads
                                                        : heads;
  const double in = (2 * shared * key + heads * value + gates) * element_bytes(op);
  const double out = heads * value * element_bytes(op);
  const double states = 2 * 4 * heads * key * value / chunk;  // written and read once, fp32
  op.bytes_read = Bytes(tokens * (backward ? in + 2 * out + 2 * states : in + states));
  op.bytes_written = Bytes(tokens * (backward ? in + 2 * states : out + states));
}

std::string_view scan_rule_name(const Op& op) { return name_of(op.as<ScanAttributes>().rule); }

void causal_convolution_work(const OpTraits& traits, Op& op) {
  const double elements = extent(op, 0) * extent(op, 1);
  const double passes = traits.pass == OpPass::kBackward ? 2 : 1;
  op.flops = Flops(passes * 2 * elements * extent(op, 2));
  op.bytes_read = Bytes(passes * elements * element_bytes(op));
  op.bytes_written = Bytes(elements * element_bytes(op));
}

}  // namespace

std::span<const OpTraits> scan_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kScanForward,
                                        .name = "scan_forward",
                                        .op_class = OpClass::kScan,
                                        .kernel = KernelKind::kAttention,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kScanBackward,
                                        .attributes = ScanAttributes{},
                                        .main = {0, 1, 3, -1},
                                        .work = scan_work,
                                        .fitted_by = scan_rule_name},
                               OpTraits{.kind = OpKind::kScanBackward,
                                        .name = "scan_backward",
                                        .op_class = OpClass::kScan,
                                        .kernel = KernelKind::kAttention,
                                        .pass = OpPass::kBackward,
                                        .attributes = ScanAttributes{},
                                        .main = {0, 1, 3, -1},
                                        .work = scan_work,
                                        .fitted_by = scan_rule_name},
                               OpTraits{.kind = OpKind::kCausalConvolutionForward,
                                        .name = "causal_convolution_forward",
                                        .kernel = KernelKind::kConvolution,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kCausalConvolutionBackward,
                                        .work = causal_convolution_work},
                               OpTraits{.kind = OpKind::kCausalConvolutionBackward,
                                        .name = "causal_convolution_backward",
                                        .kernel = KernelKind::kConvolution,
                                        .pass = OpPass::kBackward,
                                        .work = causal_convolution_work}};
  return rows;
}

}  // namespace stepcast
