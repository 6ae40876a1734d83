#include "runtime/cpu/kernels/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {

STEPCAST_MULTIVERSION void cross_entropy_maximum(ConstMatrixView logits, float* maximum) {
  for (Index i = 0; i < logits.rows; ++i) {
    maximum[i] =
        internal::maximum_of(logits.row(i), logits.columns, std::numeric_limits<float>::lowest());
  }
}

STEPCAST_MULTIVERSION void cross_entropy_sum(ConstMatrixView logits, std::int64_t first,
                                             const std::int32_t* targets, const float* maximum,
                                             float* sum, float* target_logit) {
  for (Index i = 0; i < logits.rows; ++i) {
    const float* row = logits.row(i);
    const float largest = maximum[i];
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (Index j = 0; j < logits.columns; ++j) {
      total += internal::exponential(row[j] - largest);
    }
    sum[i] = total;
    const std::int64_t column = targets[i] - first;
    target_logit[i] =
        targets[i] >= 0 && column >= 0 && column < logits.columns ? row[column] : 0.0F;
  }
}

STEPCAST_MULTIVERSION double cross_entropy_loss(ConstMatrixView logits, std::int64_t first,
                                                const std::int32_t* targets, const float* maximum,
                                                const float* sum, const float* target_logit,
                                                float factor, MatrixView d_logits) {
  double loss = 0;
  for (Index i = 0; i < logits.rows; ++i) {
    const bool counted = targets[i] >= 0;
    if (counted) {
      loss += std::log(static_cast<double>(sum[i])) + static_cast<double>(maximum[i]) -
              static_cast<double>(target_logit[i]);
    }
    if (d_logits.data == nullptr) {
      continue;
    }
    const float* row = logits.row(i);
    float* gradient = d_logits.row(i);
    const float largest = maximum[i];
    const float row_factor = counted ? factor / sum[i] : 0.0F;
#pragma omp simd
    for (Index j = 0; j < logits.columns; ++j) {
      gradient[j] = row_factor * internal::exponential(row[j] - largest);
    }
    const std::int64_t column = targets[i] - first;
    if (counted && column >= 0 && column < logits.columns) {
      gradient[column] -= factor;
    }
  }
  return loss * static_cast<double>(factor);
}

/// The logarithms of up to 32 factors in [1, 2] are one logarithm of their product, which stays
/// below 2^32.
STEPCAST_MULTIVERSION static double binary_loss(const float* logits, const float* labels, Index n) {
  constexpr Index kFactors = 32;
  double loss = 0;
  for (Index first = 0; first < n; first += kFactors) {
    const Index count = std::min(kFactors, n - first);
    double linear = 0;
    double product = 1;
#pragma omp simd reduction(+ : linear) reduction(* : product)
    for (Index i = 0; i < count; ++i) {
      const float z = logits[first + i];
      const float positive = z > 0 ? z : 0;
      linear += static_cast<double>(positive - z * labels[first + i]);
      product *= 1.0 + static_cast<double>(internal::exponential(-std::abs(z)));
    }
    loss += linear + std::log(product);
  }
  return loss;
}

STEPCAST_MULTIVERSION static void binary_gradient(const float* logits, const float* labels, Index n,
                                                  float factor, float* d_logits) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    const float z = logits[i];
    const float decay = internal::exponential(-std::abs(z));
    const float numerator = z >= 0 ? 1.0F : decay;
    d_logits[i] = factor * (numerator / (1.0F + decay) - labels[i]);
  }
}

double binary_cross_entropy(const float* logits, const float* labels, Index n, float factor,
                            float* d_logits) {
  const double loss = binary_loss(logits, labels, n);
  if (d_logits != nullptr) {
    binary_gradient(logits, labels, n, factor, d_logits);
  }
  return loss * static_cast<double>(factor);
}

}  // namespace stepcast::runtime::kernels
