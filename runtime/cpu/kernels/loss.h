#pragma once
#include <cstdint>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

// Softmax cross-entropy over a vocabulary that may be split by columns. On each shard:
//   cross_entropy_maximum  -> all-reduce (max) of maximum [rows]
//   cross_entropy_sum      -> all-reduce (sum) of sum, target_logit [rows] each
//   cross_entropy_loss     -> loss, and the logits become their gradient
// Unsharded: the same three calls without the all-reduces. A negative target is ignored: no loss,
// no gradient.

/// maximum[i] = largest logit of row i.
void cross_entropy_maximum(ConstMatrixView logits, float* maximum);

/// sum[i] = sum over this shard of exp(logit - maximum[i]); target_logit[i] = the target's logit if
/// column targets[i] - first is here, else 0. `first` is the vocabulary id of column 0.
void cross_entropy_sum(ConstMatrixView logits, std::int64_t first, const std::int32_t* targets,
                       const float* maximum, float* sum, float* target_logit);

/// Returns factor * sum over rows of (log sum + maximum - target_logit), the same on every shard,
/// accumulated in double; d_logits = factor * (softmax - one-hot). d_logits may be the logits; a
/// view without data asks for the loss only. factor = 1 / (all tokens of the global batch) gives
/// the mean.
double cross_entropy_loss(ConstMatrixView logits, std::int64_t first, const std::int32_t* targets,
                          const float* maximum, const float* sum, const float* target_logit,
                          float factor, MatrixView d_logits);

/// Binary cross-entropy of logits z against labels y in [0, 1]: returns the sum of max(z, 0) - z y
/// + log(1 + e^-|z|), times factor; d_logits = factor * (sigmoid(z) - y), may be the logits, may be
/// null. factor = 1 / global batch gives the mean.
double binary_cross_entropy(const float* logits, const float* labels, Index n, float factor,
                            float* d_logits);

}  // namespace stepcast::runtime::kernels
