#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// The two 8-bit floats of arXiv 2209.05433 (section 3): e4m3, largest value 448, for weights and
/// activations; e5m2, largest value 57344, for gradients.
enum class Fp8 : std::uint8_t { kE4m3, kE5m2 };

/// Destination of quantised values: one byte an element, `pitch` bytes from row to row; what lies
/// behind the last element of a row is zero. Nowhere without `data`.
struct QuantisedRows {
  void* data = nullptr;
  Index pitch = 0;
};

/// One matrix as an operand of fp8 products: row i of `rows` holds row i of x, row i of `columns`
/// column i; either or both.
struct Quantise {
  ConstMatrixView x;
  Fp8 format = Fp8::kE4m3;
  QuantisedRows rows{};
  QuantisedRows columns{};
};
constexpr std::size_t kQuantiseWorkspace = 8192;

/// One scale for the matrix, from its largest magnitude now: out = x * largest value of the format
/// / max |x|, rounded to nearest, never beyond the largest. Returns the address (in the workspace,
/// device) of the factor that turns sums of out back into sums of x.
const float* quantise(const Quantise& q, Workspace workspace, cudaStream_t stream);
/// The address that it returns, for a workspace that will hold scales.
const float* quantise_factor(Workspace workspace);

}  // namespace stepcast::runtime::cuda::kernels
