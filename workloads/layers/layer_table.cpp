#include <algorithm>
#include <array>

#include "core/error.h"
#include "workloads/dlrm/step.h"

// One row per kind of layer: how its forward and its backward pass are built.

namespace stepcast::workloads {

const LayeredStep::LayerRow& LayeredStep::layer_row(LayerKind kind) {
  using K = LayerKind;
  using S = LayeredStep;
  static constexpr std::array kRows{
      LayerRow{K::kTables, &S::tables_forward, &S::tables_backward},
      LayerRow{K::kLinear, &S::linear_forward, &S::linear_backward},
      LayerRow{K::kActivation, &S::activation_forward, &S::activation_backward},
      LayerRow{K::kNorm, &S::norm_forward, &S::norm_backward},
      LayerRow{K::kAdd, &S::elementwise_forward, &S::add_backward},
      LayerRow{K::kMultiply, &S::elementwise_forward, &S::multiply_backward},
      LayerRow{K::kConcatenate, &S::concatenate_forward, &S::concatenate_backward},
      LayerRow{K::kColumns, &S::columns_forward, &S::columns_backward},
      LayerRow{K::kReshape, &S::reshape_forward, &S::reshape_backward},
      LayerRow{K::kTranspose, &S::transpose_forward, &S::transpose_backward},
      LayerRow{K::kTimeMajor, &S::transpose_forward, &S::transpose_backward},
      LayerRow{K::kSampleMajor, &S::transpose_forward, &S::transpose_backward},
      LayerRow{K::kMatmul, &S::matmul_forward, &S::matmul_backward},
      LayerRow{K::kDot, &S::dot_forward, &S::dot_backward},
      LayerRow{K::kCross, &S::cross_forward, &S::cross_backward},
      LayerRow{K::kAttention, &S::attention_forward, &S::attention_backward},
      LayerRow{K::kGatedAttention, &S::gated_attention_forward, &S::gated_attention_backward},
      LayerRow{K::kSoftmax, &S::softmax_forward, &S::softmax_backward},
      LayerRow{K::kMeanRows, &S::mean_rows_forward, &S::mean_rows_backward},
      LayerRow{K::kModulate, &S::modulate_forward, &S::modulate_backward},
      LayerRow{K::kGate, &S::gate_forward, &S::gate_backward},
      LayerRow{K::kPositions, &S::positions_forward, &S::positions_backward},
      LayerRow{K::kRope, &S::rope_forward, &S::rope_backward},
      LayerRow{K::kTokenEmbedding, &S::token_embedding_forward, &S::token_embedding_backward},
      LayerRow{K::kConvolution, &S::convolution_forward, &S::convolution_backward},
      LayerRow{K::kRecurrent, &S::recurrent_forward, &S::recurrent_backward},
      LayerRow{K::kAllReduce, &S::group_forward, &S::group_backward},
      LayerRow{K::kCopyToGroup, &S::group_forward, &S::group_backward},
      LayerRow{K::kAllGather, &S::group_forward, &S::group_backward},
      LayerRow{K::kReduceScatter, &S::group_forward, &S::group_backward},
      LayerRow{K::kAllToAll, &S::group_forward, &S::group_backward}};
  const auto* row = std::find_if(kRows.begin(), kRows.end(),
                                 [kind](const LayerRow& r) { return r.kind == kind; });
  STEPCAST_CHECK(row != kRows.end(), "layers of kind {} have no row", name_of(kind));
  return *row;
}

void LayeredStep::layer_forward(std::size_t index) {
  const Layer& l = list_.layers[index];
  if (is_loss(l.kind)) {
    reads_input_ = list_.inputs.empty();
    loss(index);
    return;
  }
  reads_input_ = std::any_of(l.in.begin(), l.in.end(), [this](std::int32_t t) {
    return std::find(list_.inputs.begin(), list_.inputs.end(), t) != list_.inputs.end();
  });
  (this->*layer_row(l.kind).forward)(l, layer_states_[index]);
}

void LayeredStep::layer_backward(std::size_t index) {
  const Layer& l = list_.layers[index];
  if (l.kind == LayerKind::kInBatchSoftmax) {
    scored_items_backward(l, layer_states_[index]);
    return;
  }
  if (is_loss(l.kind) || !list_.output(l).needs_gradient) {
    return;
  }
  const std::optional<TensorId> arrived = gradient_of(l.out);
  STEPCAST_CHECK(arrived.has_value(), "layer '{}' has no gradient", l.name);
  (this->*layer_row(l.kind).backward)(l, layer_states_[index], *arrived);
}

}  // namespace stepcast::workloads
