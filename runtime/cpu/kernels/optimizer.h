#pragma once
#include "runtime/cpu/kernels/matrix_view.h"
#include "runtime/optimizer_settings.h"

namespace stepcast::runtime::kernels {

using runtime::adam_factors;
using runtime::AdamFactors;
using runtime::OptimizerSettings;

/// One update of n contiguous weights from their gradient. State arrays of n floats: SGD none,
/// Adagrad `first` (sum of squares), Adam `first` and `second` (moments). kRowwiseAdagrad on a flat
/// array is Adagrad with one row: `first` is a single float.
///   SGD      w -= lr g; Muon too, whose g is orthogonalised (muon.h)
///   Adagrad  s += g^2;  w -= lr g / (sqrt(s) + epsilon)
///   Adam     m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  w -= lr m' / (sqrt(v') + epsilon)
/// m' and v' are bias-corrected.
/// Source: Duchi et al., JMLR 12, 2011; Kingma, Ba, arXiv 1412.6980.
void optimizer_update(const OptimizerSettings& settings, const float* gradient, float* weights,
                      float* first, float* second, Index n);

}  // namespace stepcast::runtime::kernels
