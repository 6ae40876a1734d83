#pragma once
#include <memory>

#include "runtime/cpu/kernels/gemm.h"

namespace stepcast::runtime::kernels {

/// Whether this CPU multiplies bfloat16 in hardware (AVX-512 BF16 or AMX); elsewhere Bfloat16Gemm
/// is correct but slow.
bool has_bfloat16_products();

/// The product of `gemm` with both operands rounded to bfloat16 and sums in fp32. Keeps rounded
/// operands and one oneDNN primitive per shape between calls: the first call of a shape generates
/// code. One object per thread. Valid: alpha 1, beta 0 or 1, m, n, k > 0.
class Bfloat16Gemm {
 public:
  Bfloat16Gemm();
  ~Bfloat16Gemm();
  Bfloat16Gemm(Bfloat16Gemm&&) noexcept;
  Bfloat16Gemm& operator=(Bfloat16Gemm&&) noexcept;

  void operator()(const Gemm& shape, const float* a, const float* b, float* c);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepcast::runtime::kernels
