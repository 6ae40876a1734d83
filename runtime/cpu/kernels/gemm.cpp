#include "runtime/cpu/kernels/gemm.h"

#include "core/error.h"
#include "runtime/cpu/kernels/elementwise.h"
#include "runtime/cpu/kernels/internal/one_dnn.h"

namespace stepcast::runtime::kernels {
namespace {

void scale_output(const Gemm& shape, Index stride, float* c) {
  for (Index i = 0; i < shape.m; ++i) {
    if (shape.beta == 0) {
      fill(c + i * stride, 0, shape.n);
    } else {
      scale(c + i * stride, shape.beta, c + i * stride, shape.n);
    }
  }
}

}  // namespace

void gemm(const Gemm& shape, const float* a, const float* b, float* c) {
  const Index stride_c = shape.stride_c != 0 ? shape.stride_c : shape.n;
  if (shape.m == 0 || shape.n == 0) {
    return;
  }
  if (shape.k == 0) {
    scale_output(shape, stride_c, c);
    return;
  }
  const Index stride_a = shape.stride_a != 0 ? shape.stride_a
                         : shape.transpose_a ? shape.m
                                             : shape.k;
  const Index stride_b = shape.stride_b != 0 ? shape.stride_b
                         : shape.transpose_b ? shape.k
                                             : shape.n;
  const dnnl_status_t status =
      one_dnn().sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m,
                      shape.n, shape.k, shape.alpha, a, stride_a, b, stride_b, shape.beta, c,
                      stride_c);
  STEPCAST_CHECK(status == dnnl_success, "matrix product {}x{}x{}: oneDNN status {}", shape.m,
                 shape.n, shape.k, static_cast<int>(status));
}

void batched_gemm(const Gemm& shape, Index batch, const float* a, Index step_a, const float* b,
                  Index step_b, float* c, Index step_c) {
  for (Index i = 0; i < batch; ++i) {
    gemm(shape, a + i * step_a, b + i * step_b, c + i * step_c);
  }
}

std::string products_library() {
  const dnnl_version_t& v = *one_dnn().version();
  return fmt::format("oneDNN {}.{}.{}", v.major, v.minor, v.patch);
}

void use_one_thread() { one_dnn().set_threads(1); }

}  // namespace stepcast::runtime::kernels
