#include "runtime/cpu/kernels/data_movement.h"

#include <bit>

#include "core/error.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {

STEPCAST_MULTIVERSION static void copy_rows(ConstMatrixView x, MatrixView out) {
  for (Index i = 0; i < x.rows; ++i) {
    const float* in = x.row(i);
    float* to = out.row(i);
#pragma omp simd
    for (Index j = 0; j < x.columns; ++j) {
      to[j] = in[j];
    }
  }
}

void copy_block(ConstMatrixView x, MatrixView out) {
  STEPCAST_CHECK(x.rows == out.rows && x.columns == out.columns, "copy of {}x{} into {}x{}", x.rows,
                 x.columns, out.rows, out.columns);
  if (x.data == out.data) {
    return;
  }
  if (x.contiguous() && out.contiguous()) {
    copy(x.data, out.data, x.rows * x.columns);
  } else {
    copy_rows(x, out);
  }
}

STEPCAST_MULTIVERSION void to_bfloat16(const float* x, std::uint16_t* out, Index n) {
  for (Index i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(x[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    const std::uint32_t quiet = (bits >> 16U) | 0x40U;
    const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    out[i] = static_cast<std::uint16_t>(nan ? quiet : rounded);
  }
}

STEPCAST_MULTIVERSION void from_bfloat16(const std::uint16_t* x, float* out, Index n) {
  for (Index i = 0; i < n; ++i) {
    out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(x[i]) << 16U);
  }
}

}  // namespace stepcast::runtime::kernels
