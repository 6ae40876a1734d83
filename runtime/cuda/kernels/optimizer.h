#pragma once
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/optimizer_settings.h"

namespace stepcast::runtime::cuda::kernels {

/// One dense parameter. State arrays are fp32: Adagrad `first` [elements], Adam `first` and
/// `second` [elements], row-wise Adagrad `first` [rows], SGD none. `master`, if any, is the fp32
/// original of `weights`: it is updated and `weights` becomes its rounding; without it weights are
/// read, updated and rounded.
struct Parameter {
  ConstMatrixView gradient;  ///< contiguous
  MatrixView weights;        ///< contiguous, the gradient's shape
  float* master = nullptr;
  float* first = nullptr;
  float* second = nullptr;
};

/// One update of every parameter, many a launch. Rules: runtime/cpu/kernels/optimizer.h. `lazy`
/// (Adam on tables): rows whose gradient is all zero are left alone. `factors` (device, may be
/// null) replaces what `settings` gives Adam for its step, so that a captured graph may be replayed
/// with the step's own.
void optimizer_update(const OptimizerSettings& settings, const Parameter* parameters, Index count,
                      bool lazy, const AdamFactors* factors, cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
