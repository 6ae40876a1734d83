#pragma once
#include "runtime/cuda/kernels/matrix_view.h"
#include "runtime/cuda/kernels/token.h"

namespace stepcast::runtime::cuda::kernels {

// Softmax cross-entropy over a vocabulary that may be split by columns, as in
// runtime/cpu/kernels/loss.h: maximum [rows] (all-reduce max), sum and target_logit [rows]
// (all-reduce sum), then the loss. A negative target is ignored.

void cross_entropy_maximum(ConstMatrixView logits, float* maximum, cudaStream_t stream);

/// `first` is the vocabulary id of column 0.
void cross_entropy_sum(ConstMatrixView logits, std::int64_t first, TokenRows targets,
                       const float* maximum, float* sum, float* target_logit, cudaStream_t stream);

std::size_t loss_workspace(Index rows);

/// *loss (device) += factor * sum over rows of (log sum + maximum - target_logit); d_logits =
/// factor * (softmax - one-hot), may be the logits; no data: the loss only.
void cross_entropy_loss(ConstMatrixView logits, std::int64_t first, TokenRows targets,
                        const float* maximum, const float* sum, const float* target_logit,
                        float factor, MatrixView d_logits, double* loss, Workspace workspace,
                        cudaStream_t stream);

/// *loss (device) += factor * sum of max(z, 0) - z y + log(1 + e^-|z|); d_logits = factor *
/// (sigmoid(z) - y), may be the logits. All [n, 1] of any stride; formats may differ.
void binary_cross_entropy(ConstMatrixView logits, ConstMatrixView labels, float factor,
                          MatrixView d_logits, double* loss, Workspace workspace,
                          cudaStream_t stream);

}  // namespace stepcast::runtime::cuda::kernels
