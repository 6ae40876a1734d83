#pragma once
#include <string>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// C[m, n] = alpha * op(A)[m, k] * op(B)[k, n] + beta * C, row-major. With `transpose_a` A is
/// stored [k, m], with `transpose_b` B is stored [n, k]. A row stride (`stride_*`) of 0 means
/// "contiguous".
struct Gemm {
  Index m = 0;
  Index n = 0;
  Index k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  Index stride_a = 0;
  Index stride_b = 0;
  Index stride_c = 0;
};

/// Name and version of the library that multiplies, which is loaded when first needed.
/// Errors: EnvironmentError when it is not there.
std::string products_library();

/// One product through oneDNN. Valid: any size including 0 (k = 0 gives beta * C; beta = 0 never
/// reads C). The first call of a process generates code, so warm up before timing. oneDNN keeps its
/// packing buffers to itself.
void gemm(const Gemm& shape, const float* a, const float* b, float* c);

/// `batch` products of one shape; operand x of product i starts at x + i * step_x (a step of 0
/// shares the operand).
void batched_gemm(const Gemm& shape, Index batch, const float* a, Index step_a, const float* b,
                  Index step_b, float* c, Index step_c);

/// Makes oneDNN use one thread in calls from the calling thread. OpenMP keeps this setting per
/// thread: each worker that runs kernels calls it once.
void use_one_thread();

}  // namespace stepcast::runtime::kernels
