#include "models/kernels/unfused_attention.h"

#include "core/graph/op_traits.h"

namespace stepcast::models {
namespace {

constexpr double kAlignment = 16;  // bytes a row must be a multiple of, for tensor units

struct Score {
  std::int64_t heads, queries, keys, dim;
  double element;  ///< bytes
  [[nodiscard]] double elements() const {
    return static_cast<double>(heads) * static_cast<double>(queries) * static_cast<double>(keys);
  }
};

Op product(const Op& of, const Score& s, std::int64_t m, std::int64_t n, std::int64_t k,
           std::uint8_t flags) {
  Op op;
  op.kind = OpKind::kGemm;
  op.format = of.format;
  op.shape = {m, n, k, s.heads};
  op.flags = flags;
  fill_work(op);
  const double rows = static_cast<double>(s.dim) * s.element / kAlignment;
  if (rows != static_cast<double>(static_cast<std::int64_t>(rows))) {
    op.format = Format::kFp32;
  }
  return op;
}

/// `read` and `written` operands of the score matrix, and a mask of bytes.
Op stream(const Op& of, const Score& s, OpKind kind, double read, double written, bool mask) {
  Op op;
  op.kind = kind;
  op.format = of.format;
  op.shape = {s.heads * s.queries, s.keys};
  fill_work(op);
  const double elements = s.elements();
  op.bytes_read = Bytes(elements * (read * s.element));
  op.bytes_written = Bytes(elements * (written * s.element + (mask ? 1 : 0)));
  return op;
}

/// Makes `matrices` of [queries, dim] per head contiguous.
Op reorder(const Op& of, const Score& s, double matrices) {
  Op op;
  op.kind = OpKind::kCopyColumns;
  op.format = of.format;
  op.shape = {s.queries, s.heads * s.dim};
  fill_work(op);
  op.bytes_read = op.bytes_read * matrices;
  op.bytes_written = op.bytes_written * matrices;
  return op;
}

}  // namespace

std::vector<Op> unfused_attention_ops(const Op& op) {
  const auto [batch, heads, kv_heads, queries, keys, dim] = op.shape;
  const Score s{batch * heads, queries, keys, dim, bits_per_element(op.format) / 8};
  const bool dropout = op.as<AttentionAttributes>().dropout;
  std::vector<Op> ops;
  if (!is_backward(op.kind)) {
    ops.push_back(product(op, s, queries, keys, dim, op_flags::kTransposeB));
    ops.push_back(stream(op, s, OpKind::kCrossEntropyLoss, 1, 1, false));
    if (dropout) {
      ops.push_back(stream(op, s, OpKind::kAdd, 1, 1, true));
    }
    ops.push_back(product(op, s, queries, dim, keys, 0));
    ops.push_back(reorder(op, s, 1));
    return ops;
  }
  ops.push_back(product(op, s, keys, dim, queries, op_flags::kTransposeA));
  ops.push_back(product(op, s, queries, keys, dim, op_flags::kTransposeB));
  if (dropout) {
    ops.push_back(stream(op, s, OpKind::kAdd, 1, 1, true));
  }
  ops.push_back(stream(op, s, OpKind::kCrossEntropyLoss, 2, 1, false));
  ops.push_back(product(op, s, queries, dim, keys, 0));
  ops.push_back(product(op, s, keys, dim, queries, op_flags::kTransposeA));
  ops.push_back(reorder(op, s, 3));
  return ops;
}

}  // namespace stepcast::models
