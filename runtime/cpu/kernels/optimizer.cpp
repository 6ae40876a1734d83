#include "runtime/cpu/kernels/optimizer.h"

#include <cmath>

#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

STEPCAST_MULTIVERSION void adagrad(float rate, float epsilon, const float* gradient, float* weights,
                                   float* squares, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    squares[i] += gradient[i] * gradient[i];
    weights[i] -= rate * gradient[i] / (std::sqrt(squares[i]) + epsilon);
  }
}

STEPCAST_MULTIVERSION void adam(const AdamFactors& factors, const float* gradient, float* weights,
                                float* first, float* second, Index n) {
  const AdamFactors f = factors;
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    first[i] = f.beta1 * first[i] + (1.0F - f.beta1) * gradient[i];
    second[i] = f.beta2 * second[i] + (1.0F - f.beta2) * gradient[i] * gradient[i];
    weights[i] -= f.rate * first[i] / (std::sqrt(second[i]) * f.second_scale + f.epsilon);
  }
}

void rowwise_adagrad(const OptimizerSettings& settings, const float* gradient, float* weights,
                     float* square, Index n) {
  *square += static_cast<float>(sum_of_squares(gradient, n) / static_cast<double>(n));
  axpy(-settings.learning_rate / (std::sqrt(*square) + settings.epsilon), gradient, weights, n);
}

}  // namespace

void optimizer_update(const OptimizerSettings& settings, const float* gradient, float* weights,
                      float* first, float* second, Index n) {
  if (n == 0) {
    return;
  }
  switch (settings.kind) {
    case OptimizerKind::kSgd:
    case OptimizerKind::kMuon:
      return axpy(-settings.learning_rate, gradient, weights, n);
    case OptimizerKind::kAdagrad:
      return adagrad(settings.learning_rate, settings.epsilon, gradient, weights, first, n);
    case OptimizerKind::kRowwiseAdagrad:
      return rowwise_adagrad(settings, gradient, weights, first, n);
    case OptimizerKind::kAdam:
      return adam(adam_factors(settings), gradient, weights, first, second, n);
  }
}

}  // namespace stepcast::runtime::kernels
