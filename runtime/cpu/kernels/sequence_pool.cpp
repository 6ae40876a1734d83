#include "runtime/cpu/kernels/sequence_pool.h"

#include <algorithm>

#include "runtime/cpu/kernels/internal/simd.h"

namespace stepcast::runtime::kernels {

STEPCAST_MULTIVERSION void sequence_mean_forward(ConstMatrixView x, const std::int64_t* offsets,
                                                 MatrixView out) {
  for (Index bag = 0; bag < out.rows; ++bag) {
    float* mean = out.row(bag);
    std::fill_n(mean, out.columns, 0.0F);
    for (Index i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      const float* row = x.row(i);
#pragma omp simd
      for (Index j = 0; j < out.columns; ++j) {
        mean[j] += row[j];
      }
    }
    const float factor =
        1.0F / static_cast<float>(std::max<Index>(1, offsets[bag + 1] - offsets[bag]));
#pragma omp simd
    for (Index j = 0; j < out.columns; ++j) {
      mean[j] *= factor;
    }
  }
}

STEPCAST_MULTIVERSION void sequence_mean_backward(ConstMatrixView d_out,
                                                  const std::int64_t* offsets, MatrixView dx) {
  for (Index bag = 0; bag < d_out.rows; ++bag) {
    const float* gradient = d_out.row(bag);
    const float factor =
        1.0F / static_cast<float>(std::max<Index>(1, offsets[bag + 1] - offsets[bag]));
    for (Index i = offsets[bag]; i < offsets[bag + 1]; ++i) {
      float* row = dx.row(i);
#pragma omp simd
      for (Index j = 0; j < d_out.columns; ++j) {
        row[j] = factor * gradient[j];
      }
    }
  }
}

}  // namespace stepcast::runtime::kernels
