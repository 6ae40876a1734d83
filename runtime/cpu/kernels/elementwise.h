#pragma once
#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

// Flat streaming kernels over n contiguous floats. The output may be one of the inputs; it may not
// overlap one partially.

void fill(float* out, float value, Index n);
void copy(const float* x, float* out, Index n);
/// out = factor * x
void scale(const float* x, float factor, float* out, Index n);
/// out = a + b (residual connection)
void add(const float* a, const float* b, float* out, Index n);
/// out = a * b
void multiply(const float* a, const float* b, float* out, Index n);
/// y += alpha * x
void axpy(float alpha, const float* x, float* y, Index n);
/// sum of a * b
float dot(const float* a, const float* b, Index n);
/// sum of x * x, accumulated in double (gradient norms)
double sum_of_squares(const float* x, Index n);

/// Row i of x times factors[i], in place.
void scale_rows(MatrixView x, const float* factors);
/// sums[j] += sum over rows of x[i, j]
void add_column_sums(ConstMatrixView x, float* sums);

}  // namespace stepcast::runtime::kernels
