#include "runtime/cpu/kernels/position.h"

#include "core/error.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {
namespace {

/// `direction` is 1 to rotate forward, -1 to rotate back.
STEPCAST_MULTIVERSION void rotate(const RotaryTable& table, float direction, MatrixView x) {
  const Index half = table.head_dim() / 2;
  for (Index token = 0; token < x.rows; ++token) {
    const float* cosine = table.row(token % table.length());
    const float* sine = cosine + half;
    for (Index first = 0; first < x.columns; first += 2 * half) {
      float* left = x.row(token) + first;
      float* right = left + half;
#pragma omp simd
      for (Index i = 0; i < half; ++i) {
        const float a = left[i];
        const float b = right[i];
        const float s = direction * sine[i];
        left[i] = a * cosine[i] - b * s;
        right[i] = b * cosine[i] + a * s;
      }
    }
  }
}

/// to[t] += from[t], both row numbers taken modulo the heights of the two.
STEPCAST_MULTIVERSION void add_cyclic(ConstMatrixView from, MatrixView to, Index rows) {
  for (Index i = 0; i < rows; ++i) {
    const float* in = from.row(i % from.rows);
    float* out = to.row(i % to.rows);
#pragma omp simd
    for (Index j = 0; j < to.columns; ++j) {
      out[j] += in[j];
    }
  }
}

}  // namespace

void rotary_forward(const RotaryTable& table, MatrixView x) {
  STEPCAST_CHECK(x.columns % table.head_dim() == 0, "width {} is not whole heads of {}", x.columns,
                 table.head_dim());
  rotate(table, 1, x);
}

void rotary_backward(const RotaryTable& table, MatrixView dx) {
  STEPCAST_CHECK(dx.columns % table.head_dim() == 0, "width {} is not whole heads of {}",
                 dx.columns, table.head_dim());
  rotate(table, -1, dx);
}

void add_positions(ConstMatrixView positions, MatrixView x) { add_cyclic(positions, x, x.rows); }
void add_positions_backward(ConstMatrixView dx, MatrixView d_positions) {
  add_cyclic(dx, d_positions, dx.rows);
}

}  // namespace stepcast::runtime::kernels
