#include "runtime/cpu/kernels/interaction.h"

#include "core/error.h"
#include "runtime/cpu/kernels/data_movement.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/gemm.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

void check_shapes(const DotInteraction& shape, ConstMatrixView x, ConstMatrixView out) {
  STEPCAST_CHECK(x.rows == out.rows && x.columns == shape.features * shape.dim &&
                     out.columns == shape.output_width(),
                 "interaction of {} features x {}: input {}x{}, output {}x{}", shape.features,
                 shape.dim, x.rows, x.columns, out.rows, out.columns);
}

}  // namespace

void dot_interaction_forward(const DotInteraction& shape, ConstMatrixView x, MatrixView out,
                             float* scratch) {
  check_shapes(shape, x, out);
  Gemm product{shape.features, shape.features, shape.dim, false, true};
  for (Index sample = 0; sample < x.rows; ++sample) {
    const float* features = x.row(sample);
    gemm(product, features, features, scratch);
    copy(features, out.row(sample), shape.dim);
    float* pairs = out.row(sample) + shape.dim;
    for (Index i = 1; i < shape.features; ++i) {
      copy(scratch + i * shape.features, pairs, i);
      pairs += i;
    }
  }
}

void dot_interaction_backward(const DotInteraction& shape, ConstMatrixView d_out, ConstMatrixView x,
                              MatrixView dx, float* scratch) {
  check_shapes(shape, x, d_out);
  const Index n = shape.features;
  const Gemm product{n, shape.dim, n};
  for (Index sample = 0; sample < x.rows; ++sample) {
    const float* pairs = d_out.row(sample) + shape.dim;
    scratch[0] = 0;
    for (Index i = 1; i < n; ++i) {
      for (Index j = 0; j < i; ++j) {
        scratch[i * n + j] = pairs[j];
        scratch[j * n + i] = pairs[j];
      }
      scratch[i * n + i] = 0;
      pairs += i;
    }
    gemm(product, scratch, x.row(sample), dx.row(sample));
    add(dx.row(sample), d_out.row(sample), dx.row(sample), shape.dim);
  }
}

STEPCAST_MULTIVERSION void cross_forward(ConstMatrixView x0, ConstMatrixView u, const float* bias,
                                         ConstMatrixView x, MatrixView out) {
  for (Index i = 0; i < out.rows; ++i) {
    const float* first = x0.row(i);
    const float* mixed = u.row(i);
    const float* in = x.row(i);
    float* to = out.row(i);
#pragma omp simd
    for (Index j = 0; j < out.columns; ++j) {
      to[j] = first[j] * (mixed[j] + bias[j]) + in[j];
    }
  }
}

STEPCAST_MULTIVERSION static void cross_gradients(ConstMatrixView d_out, ConstMatrixView x0,
                                                  ConstMatrixView u, const float* bias,
                                                  MatrixView du, float* d_bias, MatrixView d_x0) {
  for (Index i = 0; i < d_out.rows; ++i) {
    const float* gradient = d_out.row(i);
    const float* first = x0.row(i);
    const float* mixed = u.row(i);
    float* d_mixed = du.row(i);
    float* d_first = d_x0.row(i);
#pragma omp simd
    for (Index j = 0; j < d_out.columns; ++j) {
      d_first[j] += gradient[j] * (mixed[j] + bias[j]);
      const float d = gradient[j] * first[j];
      d_mixed[j] = d;
      d_bias[j] += d;
    }
  }
}

void cross_backward(ConstMatrixView d_out, ConstMatrixView x0, ConstMatrixView u, const float* bias,
                    MatrixView du, float* d_bias, MatrixView d_x0, MatrixView d_x) {
  cross_gradients(d_out, x0, u, bias, du, d_bias, d_x0);
  if (d_x.data != nullptr) {
    copy_block(d_out, d_x);
  }
}

}  // namespace stepcast::runtime::kernels
