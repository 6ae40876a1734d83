#pragma once
#include <cstdint>

namespace stepcast {

/// What a product does with its numbers before they leave the chip: the `variant` of OpKind::kGemm,
/// C = op(A) op(B) [+ C]. Operands beside A, B and C in brackets.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,          ///< C + bias, a row; in [bias]
  kBiasRelu,      ///< max(0, C + bias); in [bias]
  kBiasReluMask,  ///< the same, and which numbers are positive; in [bias], out [mask]
  kReluBackward,  ///< C where y > 0, else 0, and its column sums added to d_bias; in [y, mask], out
                  ///< [d_bias]
  kColumnSums,    ///< C, and the column sums of B added to d_bias; out [d_bias]
};

/// Columns of a mask of a matrix `columns` wide: one bit a number in words of 32, rows in packs of
/// 128 bits, as cuBLASLt reads them.
constexpr std::int64_t mask_words(std::int64_t columns) { return (columns + 127) / 128 * 4; }

}  // namespace stepcast
