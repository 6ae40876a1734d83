#pragma once
#include <cstdint>

#include "core/op.h"
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// What an optimizer needs besides its arrays. `step` counts from 1 (Adam's bias correction).
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  std::int64_t step = 1;
};

/// Adam's update as one expression: weight -= rate * m / (sqrt(v) * second_scale + epsilon), with
/// rate = learning_rate / (1 - beta1^step), second_scale = 1 / sqrt(1 - beta2^step).
struct AdamFactors {
  float beta1;
  float beta2;
  float rate;
  float second_scale;
  float epsilon;
};
AdamFactors adam_factors(const OptimizerSettings& settings);

/// One update of n contiguous weights from their gradient. State arrays of n floats: SGD none,
/// Adagrad `first` (sum of squares), Adam `first` and `second` (moments). kRowwiseAdagrad on a flat
/// array is Adagrad with one row: `first` is a single float.
///   SGD      w -= lr g
///   Adagrad  s += g^2;  w -= lr g / (sqrt(s) + epsilon)
///   Adam     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr m' / (sqrt(v') + epsilon),
///   ' = bias-corrected
/// Source: Duchi et al., JMLR 12, 2011; Kingma, Ba, arXiv 1412.6980.
void optimizer_update(const OptimizerSettings& settings, const float* gradient, float* weights,
                      float* first, float* second, Index n);

}  // namespace stepcast::runtime::kernels
