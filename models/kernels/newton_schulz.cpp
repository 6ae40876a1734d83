#include "models/kernels/newton_schulz.h"

#include "core/graph/op_traits.h"

namespace stepcast::models {
namespace {

Op product(Format format, std::int64_t m, std::int64_t n, std::int64_t k, std::uint8_t flags) {
  Op op;
  op.kind = OpKind::kGemm;
  op.format = format;
  op.shape = {m, n, k, 1};
  op.flags = flags;
  fill_work(op);
  return op;
}

/// A pass over a matrix; bytes by element.
Op stream(Format format, double elements, double read, double written) {
  Op op;
  op.kind = OpKind::kCast;
  op.format = format;
  op.shape = {static_cast<std::int64_t>(elements)};
  op.bytes_read = Bytes(elements * read);
  op.bytes_written = Bytes(elements * written);
  return op;
}

}  // namespace

std::vector<RepeatedOp> newton_schulz_ops(const Op& op) {
  const std::int64_t m = op.shape[0];
  const std::int64_t n = op.shape[1];
  const auto matrices = static_cast<double>(op.shape[2]);
  const double products = matrices * static_cast<double>(op.shape[3]);
  const double elements = static_cast<double>(m) * static_cast<double>(n);
  const double e = bits_per_element(op.format) / 8;
  return {{stream(Format::kFp32, elements, 4, 0), matrices},
          {stream(op.format, elements, 4, e), matrices},
          {product(op.format, m, m, n, op_flags::kTransposeB), products},
          {product(op.format, m, m, m, op_flags::kAccumulate), products},
          {product(op.format, m, n, m, op_flags::kAccumulate), products},
          {stream(Format::kFp32, elements, e, 4), matrices}};
}

}  // namespace stepcast::models
