#pragma once
#include <cstdint>

#include "runtime/cuda/kernels/matrix_view.h"

namespace stepcast::runtime::cuda::kernels {

/// The two 8-bit floats of arXiv 2209.05433 (section 3): e4m3, largest value 448, for weights and
/// activations; e5m2, largest value 57344, for gradients.
enum class Fp8 : std::uint8_t { kE4m3, kE5m2 };

/// One matrix as an operand of an fp8 product: row i of `out` holds row i of x (or column i, with
/// `transpose`), one byte an element, `pitch` bytes from row to row; what lies behind the last
/// element of a row is zero.
struct Quantise {
  ConstMatrixView x;
  bool transpose = false;
  Fp8 format = Fp8::kE4m3;
  void* out = nullptr;
  Index pitch = 0;
};
constexpr std::size_t kQuantiseWorkspace = 8192;

/// One scale for the matrix, from its largest magnitude now: out = x * largest value of the format
/// / max |x|, rounded to nearest, never beyond the largest. Returns the address (in the workspace,
/// device) of the factor that turns sums of out back into sums of x.
const float* quantise(const Quantise& q, Workspace workspace, cudaStream_t stream);
/// The other layout of the same values, with the scale that quantise() left in the workspace.
const float* quantise_again(const Quantise& q, Workspace workspace, cudaStream_t stream);
/// The address that both return, for a workspace that will hold scales.
const float* quantise_factor(Workspace workspace);

}  // namespace stepcast::runtime::cuda::kernels
