// Ops that a step runs once: its batch and its update; and work of other programs.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// Gradients and state are counted in the op's format; row-wise Adagrad has one state for each row.
void optimizer_work(const OpTraits&, Op& op) {
  constexpr std::array<PerElement, 4> kPerElement{// by OptimizerKind
                                                  {{2, 1, 2}, {4, 3, 14}, {2, 1, 4}, {3, 2, 7}}};
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
