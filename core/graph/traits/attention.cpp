#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

void attention_work(const OpTraits& traits, Op& op) {
  const double per_element = element_bytes(op);
  const auto [batch, heads, kv_heads, queries, keys, dim] = op.shape;
  const std::int32_t limit = op.as<AttentionAttributes>().window;
  const auto d = [](std::int64_t v) { return static_cast<double>(v); };
  // A causal window w leaves query i min(i + 1, w) keys: w - w^2 / 2k of k on average.
  const double reach = limit > 0 ? std::min(1.0, limit / d(std::max<std::int64_t>(keys, 1))) : 1.0;
  const double scores = d(batch) * d(heads) * d(queries) * d(keys) *
                        ((op.flags & op_flags::kCausal) != 0 ? reach * (1 - reach / 2) : 1.0);
  const double query_elements = d(batch) * d(queries) * d(heads) * d(dim);
  const double kv_elements = 2 * d(batch) * d(keys) * d(kv_heads) * d(dim);
  const double statistics = 4 * d(batch) * d(heads) * d(queries);  // fp32 log-sum-exp
  const bool backward = traits.pass == OpPass::kBackward;
  const bool unfused = (op.flags & op_flags::kUnfused) != 0;
  // Forward: Q K^T and P V. Backward: dV, dP, dQ, dK; the fused kernel recomputes Q K^T.
  const double products = backward ? (unfused ? 4 : 5) : 2;
  op.flops = Flops(products * 2 * scores * d(dim));
  const double score_traffic =
      unfused ? d(batch) * d(heads) * d(queries) * d(keys) * per_element : 0;
  // Forward: scores written, read and written by the softmax, read by the second product. Backward:
  // probabilities read for dV and by the softmax, dP written and read, dS written and read twice.
  if (backward) {
    op.bytes_read =
        Bytes((3 * query_elements + kv_elements) * per_element + statistics + 5 * score_traffic);
    op.bytes_written = Bytes((query_elements + kv_elements) * per_element + 2 * score_traffic);
  } else {
    op.bytes_read = Bytes((query_elements + kv_elements) * per_element + 2 * score_traffic);
    op.bytes_written = Bytes(query_elements * per_element + statistics + 2 * score_traffic);
  }
}

/// Pairs are counted one by one: a causal sequence of n has n (n + 1) / 2. Offsets, 4 bytes a
/// sequence, are left out of the bytes.
void jagged_attention_work(const OpTraits& traits, Op& op) {
  const double pairs = extent(op, 4);
  const double dim = extent(op, 5);
  const double rows = extent(op, 0) * extent(op, 3);
  const double queries = rows * extent(op, 1) * dim * element_bytes(op);
  const double keys = 2 * rows * extent(op, 2) * dim * element_bytes(op);
  const double statistics = 4 * rows * extent(op, 1);  // fp32 log-sum-exp
  const bool backward = traits.pass == OpPass::kBackward;
  op.flops = Flops((backward ? 5 : 2) * 2 * extent(op, 1) * pairs * dim);
  op.bytes_read = Bytes((backward ? 3 * queries + statistics : queries) + keys);
  op.bytes_written = Bytes(queries + (backward ? keys : statistics));
}

}  // namespace

std::span<const OpTraits> attention_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kAttentionForward,
                                        .name = "attention_forward",
                                        .op_class = OpClass::kAttention,
                                        .kernel = KernelKind::kAttention,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kAttentionBackward,
                                        .attributes = AttentionAttributes{},
                                        .main = {0, 1, 3, 5},
                                        .work = attention_work},
                               OpTraits{.kind = OpKind::kAttentionBackward,
                                        .name = "attention_backward",
                                        .op_class = OpClass::kAttention,
                                        .kernel = KernelKind::kAttention,
                                        .pass = OpPass::kBackward,
                                        .attributes = AttentionAttributes{},
                                        .main = {0, 1, 3, 5},
                                        .work = attention_work},
                               OpTraits{.kind = OpKind::kJaggedAttentionForward,
                                        .name = "jagged_attention_forward",
                                        .op_class = OpClass::kAttention,
                                        .kernel = KernelKind::kAttention,
                                        .pass = OpPass::kForward,
                                        .backward = OpKind::kJaggedAttentionBackward,
                                        .attributes = JaggedAttributes{},
                                        .main = {0, 1, 3, 5},
                                        .work = jagged_attention_work,
                                        .fitted_as = "attention_forward"},
                               OpTraits{.kind = OpKind::kJaggedAttentionBackward,
                                        .name = "jagged_attention_backward",
                                        .op_class = OpClass::kAttention,
                                        .kernel = KernelKind::kAttention,
                                        .pass = OpPass::kBackward,
                                        .attributes = JaggedAttributes{},
                                        .main = {0, 1, 3, 5},
                                        .work = jagged_attention_work,
                                        .fitted_as = "attention_backward"}};
  return rows;
}

}  // namespace stepcast
