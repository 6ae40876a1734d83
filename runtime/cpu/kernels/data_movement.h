#pragma once
#include <cstdint>

#include "runtime/cpu/kernels/matrix_view.h"

namespace stepcast::runtime::kernels {

/// out = x for two equal shapes of any strides: joins or splits column blocks. Concatenation of
/// matrices of one height is one call per source with out.block(first, width). Blocks that start at
/// the same address are left alone.
void copy_block(ConstMatrixView x, MatrixView out);

/// fp32 <-> bfloat16 (the upper half of an fp32), rounding to nearest even; a NaN stays a NaN.
void to_bfloat16(const float* x, std::uint16_t* out, Index n);
void from_bfloat16(const std::uint16_t* x, float* out, Index n);

}  // namespace stepcast::runtime::kernels
