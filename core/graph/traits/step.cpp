// Ops that a step runs once: its batch and its update; and work of other programs.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// Gradients and state are counted in the op's format; row-wise Adagrad has one state for each row.
void optimizer_work(const OpTraits&, Op& op) {
  constexpr std::array<PerElement, 5> kPerElement{
      // by OptimizerKind
      {{2, 1, 2}, {4, 3, 14}, {2, 1, 4}, {3, 2, 7}, {2, 2, 4}}};
  const OptimizerKind kind = op.as<OptimizerAttributes>().kind;
  PerElement w = kPerElement.at(static_cast<std::size_t>(kind));
  if (kind == OptimizerKind::kRowwiseAdagrad) {
    const double rows = 1 / std::max(1.0, extent(op, 1));  // an element
    w.read += rows;
    w.written += rows;
  }
  const double e = element_bytes(op);
  op.flops = Flops(w.flops * extent(op, 0));
  op.bytes_read = Bytes(w.read * extent(op, 0) * e);
  op.bytes_written = Bytes(w.written * extent(op, 0) * e);
}
std::string_view optimizer_name(const Op& op) { return name_of(op.as<OptimizerAttributes>().kind); }

/// Newton-Schulz iterations on X of m x n, from below ||X|| = 1: A = X X^T, B = b A + c A A,
/// X = a X + B X. FLOPs an iteration: 4 m^2 n + 2 m^3. Each product reads and writes its operands,
/// the sums come for free; the norm and the cast to the format read X in fp32, the result is fp32.
/// Source: Jordan et al., "Muon", 2024; Liu et al., arXiv 2502.16982.
void orthogonalize_work(const OpTraits&, Op& op) {
  const double m = extent(op, 0);
  const double n = extent(op, 1);
  const double matrices = extent(op, 2);
  const double iterations = extent(op, 3);
  const double e = bits_per_element(op.format) / 8;
  op.flops = Flops(matrices * iterations * (4 * m * m * n + 2 * m * m * m));
  op.bytes_read =
      Bytes(matrices * (iterations * (4 * m * n + 4 * m * m) * e + m * n * (2 * 4 + e)));
  op.bytes_written = Bytes(matrices * (iterations * (m * n + 2 * m * m) * e + m * n * (e + 4)));
}

/// {bytes}.
void load_work(const OpTraits&, Op& op) { op.bytes_read = op.bytes_written = Bytes(extent(op, 0)); }

}  // namespace

std::span<const OpTraits> step_traits() {
  static const std::array rows{OpTraits{.kind = OpKind::kOptimizer,
                                        .name = "optimizer",
                                        .kernel = KernelKind::kOptimizer,
                                        .attributes = OptimizerAttributes{},
                                        .main = {0, -1, -1, -1},
                                        .work = optimizer_work,
                                        .fitted_by = optimizer_name},
                               OpTraits{.kind = OpKind::kOrthogonalize,
                                        .name = "orthogonalize",
                                        .op_class = OpClass::kGemm,
                                        .kernel = KernelKind::kGemm,
                                        .main = {0, 1, 2, -1},
                                        .work = orthogonalize_work},
                               OpTraits{.kind = OpKind::kLoadBatch,
                                        .name = "load_batch",
                                        .kernel = KernelKind::kCopy,
                                        .main = {0, -1, -1, -1},
                                        .work = load_work},
                               OpTraits{.kind = OpKind::kRecorded,
                                        .name = "recorded",
                                        .op_class = OpClass::kRecorded,
                                        .kernel = KernelKind::kOther,
                                        .attributes = RecordedAttributes{},
                                        .work = no_work}};
  return rows;
}

}  // namespace stepcast
