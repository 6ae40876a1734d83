// Maps over the rows of matrices.
#include "core/graph/traits/work.h"

namespace stepcast {
namespace {

/// FLOPs per element are nominal (a transcendental counts 1): these ops are bound by memory.
void activation_work(const OpTraits& traits, Op& op) {
  const bool two = is_gated(op.as<ActivationAttributes>().activation);  // inputs per output
  row_wise_work(traits.pass == OpPass::kForward
                    ? PerElement{two ? 2.0 : 1.0, 1, two ? 5.0 : 8.0}
                    : PerElement{two ? 3.0 : 2.0, two ? 2.0 : 1.0, two ? 10.0 : 12.0},
                op);
}

void rope_work(const OpTraits&, Op& op) {
  const double elements = extent(op, 0) * extent(op, 1) * extent(op, 2);
  op.flops = Flops(3 * elements);
  op.bytes_read = op.bytes_written = Bytes(elements * element_bytes(op));
}

/// A pass over the scores; a choice is an index of 4 bytes.
void select_work(const OpTraits&, Op& op) {
  const double scores = extent(op, 0) * extent(op, 1);
  op.flops = Flops(scores);
  op.bytes_read = Bytes(4 * scores);
  op.bytes_written = Bytes(4 * extent(op, 0) * extent(op, 2));
}

/// {elements}.
void flat_work(const OpTraits& traits, Op& op) {
  const double e = element_bytes(op);
  op.bytes_read = Bytes(traits.per_element.read * extent(op, 0) * e);
  op.bytes_written = Bytes(traits.per_element.written * extent(op, 0) * e);
}

std::string_view activation_name(const Op& op) {
  return name_of(op.as<ActivationAttributes>().activation);
}
std::string_view norm_name(const Op& op) { return name_of(op.as<NormAttributes>().norm); }

/// A copy of column blocks starts one run of bytes per row and block.
double block_runs(const Op& op) {
  const double rows = static_cast<double>(std::max<std::int64_t>(op.shape[0], 1));
  return rows * std::max<double>(1, op.inputs + op.outputs - 1);
}

}  // namespace

std::span<const OpTraits> row_wise_traits() {
  static const std::array rows{
      OpTraits{.kind = OpKind::kSelectKeys,
               .name = "select_keys",
               .kernel = KernelKind::kReduction,
               .work = select_work},
      OpTraits{.kind = OpKind::kCrossForward,
               .name = "cross_forward",
               .pass = OpPass::kForward,
               .backward = OpKind::kCrossBackward,
               .work = row_wise_work,
               .per_element = {3, 1, 3}},
      OpTraits{.kind = OpKind::kCrossBackward,
               .name = "cross_backward",
               .pass = OpPass::kBackward,
               .work = row_wise_work,
               .per_element = {4, 3, 6}},
      OpTraits{.kind = OpKind::kBiasActivationForward,
               .name = "bias_activation_forward",
               .pass = OpPass::kForward,
               .backward = OpKind::kBiasActivationBackward,
               .attributes = ActivationAttributes{},
               .work = row_wise_work,
               .per_element = {1, 1, 2},
               .fitted_by = activation_name},
      OpTraits{.kind = OpKind::kBiasActivationBackward,
               .name = "bias_activation_backward",
               .pass = OpPass::kBackward,
               .attributes = ActivationAttributes{},
               .work = row_wise_work,
               .per_element = {2, 1, 2},
               .fitted_by = activation_name},
      OpTraits{.kind = OpKind::kActivationForward,
               .name = "activation_forward",
               .pass = OpPass::kForward,
               .backward = OpKind::kActivationBackward,
               .attributes = ActivationAttributes{},
               .work = activation_work,
               .fitted_by = activation_name},
      OpTraits{.kind = OpKind::kActivationBackward,
               .name = "activation_backward",
               .pass = OpPass::kBackward,
               .attributes = ActivationAttributes{},
               .work = activation_work,
               .fitted_by = activation_name},
      OpTraits{.kind = OpKind::kNormForward,
               .name = "norm_forward",
               .kernel = KernelKind::kNorm,
               .pass = OpPass::kForward,
               .backward = OpKind::kNormBackward,
               .attributes = NormAttributes{},
               .work = row_wise_work,
               .per_element = {1, 1, 8},
               .fitted_by = norm_name},
      OpTraits{.kind = OpKind::kNormBackward,
               .name = "norm_backward",
               .kernel = KernelKind::kNorm,
               .pass = OpPass::kBackward,
               .attributes = NormAttributes{},
               .work = row_wise_work,
               .per_element = {2, 1, 14},
               .fitted_by = norm_name},
      OpTraits{.kind = OpKind::kRopeForward,
               .name = "rope_forward",
               .pass = OpPass::kForward,
               .backward = OpKind::kRopeBackward,
               .main = {0, 1, 2, -1},
               .work = rope_work},
      OpTraits{.kind = OpKind::kRopeBackward,
               .name = "rope_backward",
               .pass = OpPass::kBackward,
               .main = {0, 1, 2, -1},
               .work = rope_work},
      OpTraits{
          .kind = OpKind::kAdd, .name = "add", .work = row_wise_work, .per_element = {2, 1, 1}},
      OpTraits{.kind = OpKind::kCopyColumns,
               .name = "copy_columns",
               .kernel = KernelKind::kCopy,
               .attributes = ColumnAttributes{},
               .work = row_wise_work,
               .per_element = {1, 1, 0},
               .runs = block_runs},
      OpTraits{.kind = OpKind::kFill,
               .name = "fill",
               .kernel = KernelKind::kCopy,
               .main = {0, -1, -1, -1},
               .work = flat_work,
               .per_element = {0, 1, 0}},
      OpTraits{.kind = OpKind::kCast,
               .name = "cast",
               .kernel = KernelKind::kCopy,
               .main = {0, -1, -1, -1},
               .work = flat_work,
               .per_element = {1, 1, 0}}};
  return rows;
}

}  // namespace stepcast
