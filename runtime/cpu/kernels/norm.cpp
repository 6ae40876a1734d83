#include "runtime/cpu/kernels/norm.h"

#include <cmath>

#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

/// Sum of (x - mean)^2.
STEPCAST_INLINE float squared_distance(const float* x, float mean, Index n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index j = 0; j < n; ++j) {
    const float centred = x[j] - mean;
    sum += centred * centred;
  }
  return sum;
}

}  // namespace

STEPCAST_MULTIVERSION void norm_forward(Norm norm, ConstMatrixView x, const float* weight,
                                        const float* bias, float epsilon, MatrixView y,
                                        float* statistics) {
  const auto width = static_cast<float>(x.columns);
  for (Index i = 0; i < x.rows; ++i) {
    const float* in = x.row(i);
    float* out = y.row(i);
    const float mean = norm == Norm::kLayerNorm ? internal::sum_of(in, x.columns) / width : 0.0F;
    const float r = 1.0F / std::sqrt(squared_distance(in, mean, x.columns) / width + epsilon);
    statistics[2 * i] = mean;
    statistics[2 * i + 1] = r;
    if (bias != nullptr) {
#pragma omp simd
      for (Index j = 0; j < x.columns; ++j) {
        out[j] = (in[j] - mean) * r * weight[j] + bias[j];
      }
    } else {
#pragma omp simd
      for (Index j = 0; j < x.columns; ++j) {
        out[j] = (in[j] - mean) * r * weight[j];
      }
    }
  }
}

STEPCAST_MULTIVERSION void norm_backward(Norm norm, ConstMatrixView dy, ConstMatrixView x,
                                         const float* weight, const float* statistics,
                                         MatrixView dx, float* d_weight, float* d_bias) {
  const auto width = static_cast<float>(x.columns);
  for (Index i = 0; i < x.rows; ++i) {
    const float* in = x.row(i);
    const float* gradient = dy.row(i);
    float* out = dx.row(i);
    const float mean = statistics[2 * i];
    const float r = statistics[2 * i + 1];
    float sum_g = 0;
    float sum_gn = 0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
    for (Index j = 0; j < x.columns; ++j) {
      const float normalised = (in[j] - mean) * r;
      const float g = gradient[j] * weight[j];
      sum_g += g;
      sum_gn += g * normalised;
      d_weight[j] += gradient[j] * normalised;
    }
    if (d_bias != nullptr) {
#pragma omp simd
      for (Index j = 0; j < x.columns; ++j) {
        d_bias[j] += gradient[j];
      }
    }
    const float mean_g = norm == Norm::kLayerNorm ? sum_g / width : 0.0F;
    const float mean_gn = sum_gn / width;
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) {
      const float normalised = (in[j] - mean) * r;
      out[j] = r * (gradient[j] * weight[j] - mean_g - normalised * mean_gn);
    }
  }
}

}  // namespace stepcast::runtime::kernels
