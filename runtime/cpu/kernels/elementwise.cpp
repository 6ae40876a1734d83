#include "runtime/cpu/kernels/elementwise.h"

#include <algorithm>
#include <cstring>

#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {

void fill(float* out, float value, Index n) {
  if (value == 0) {
    if (n > 0) {
      std::memset(out, 0, static_cast<std::size_t>(n) * sizeof(float));
    }
  } else {
    std::fill_n(out, n, value);
  }
}

void copy(const float* x, float* out, Index n) {
  if (n > 0 && x != out) {
    std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(float));
  }
}

STEPCAST_MULTIVERSION void scale(const float* x, float factor, float* out, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    out[i] = factor * x[i];
  }
}

STEPCAST_MULTIVERSION void add(const float* a, const float* b, float* out, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    out[i] = a[i] + b[i];
  }
}

STEPCAST_MULTIVERSION void multiply(const float* a, const float* b, float* out, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    out[i] = a[i] * b[i];
  }
}

STEPCAST_MULTIVERSION void axpy(float alpha, const float* x, float* y, Index n) {
#pragma omp simd
  for (Index i = 0; i < n; ++i) {
    y[i] += alpha * x[i];
  }
}

STEPCAST_MULTIVERSION float dot(const float* a, const float* b, Index n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

STEPCAST_MULTIVERSION double sum_of_squares(const float* x, Index n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) {
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  return sum;
}

STEPCAST_MULTIVERSION void scale_rows(MatrixView x, const float* factors) {
  for (Index i = 0; i < x.rows; ++i) {
    float* row = x.row(i);
    const float factor = factors[i];
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) {
      row[j] *= factor;
    }
  }
}

STEPCAST_MULTIVERSION void add_column_sums(ConstMatrixView x, float* sums) {
  for (Index i = 0; i < x.rows; ++i) {
    const float* row = x.row(i);
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) {
      sums[j] += row[j];
    }
  }
}

}  // namespace stepcast::runtime::kernels
