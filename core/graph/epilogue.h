#pragma once
#include <cstdint>
#include <string_view>

namespace stepcast {

/// Work of a product, C = op(A) op(B) [+ C], on its numbers before they leave the chip.
/// Operands other than A, B and C in brackets. GELU is the tanh form; its input is what it was
/// applied to, the bias included, kept for the backward.
enum class Epilogue : std::uint8_t {
  kNone,
  kBias,              ///< C + bias, a row; in [bias]
  kBiasRelu,          ///< max(0, C + bias); in [bias]
  kBiasReluMask,      ///< the same, and which numbers are positive; in [bias], out [mask]
  kReluBackward,      ///< C where y > 0, else 0, and its column sums added to d_bias; in [y, mask],
                      ///< out [d_bias]
  kColumnSums,        ///< C, and the column sums of B added to d_bias; out [d_bias]
  kGelu,              ///< gelu(C)
  kBiasGelu,          ///< gelu(C + bias); in [bias]
  kGeluInput,         ///< gelu(C), and C; out [input]
  kBiasGeluInput,     ///< gelu(C + bias), and C + bias; in [bias], out [input]
  kGeluBackward,      ///< C * gelu'(input); in [input]
  kGeluBackwardSums,  ///< the same, and its column sums added to d_bias; in [input], out [d_bias]
};
std::string_view name_of(Epilogue epilogue);

/// Whether it adds a bias, its third input.
constexpr bool adds_bias(Epilogue e) {
  return e == Epilogue::kBias || e == Epilogue::kBiasRelu || e == Epilogue::kBiasReluMask ||
         e == Epilogue::kBiasGelu || e == Epilogue::kBiasGeluInput;
}
/// Whether it makes column sums, its last output.
constexpr bool sums_columns(Epilogue e) {
  return e == Epilogue::kReluBackward || e == Epilogue::kColumnSums ||
         e == Epilogue::kGeluBackwardSums;
}
/// Whether it writes the GELU's input, its last output.
constexpr bool keeps_gelu_input(Epilogue e) {
  return e == Epilogue::kGeluInput || e == Epilogue::kBiasGeluInput;
}
/// Whether it reads the GELU's input, its third input.
constexpr bool reads_gelu_input(Epilogue e) {
  return e == Epilogue::kGeluBackward || e == Epilogue::kGeluBackwardSums;
}

/// Columns of a mask of a matrix `columns` wide: one bit a number in words of 32, rows in packs of
/// 128 bits, as cuBLASLt reads them.
constexpr std::int64_t mask_words(std::int64_t columns) { return (columns + 127) / 128 * 4; }

/// Columns of the memory for a GELU's input `columns` wide: cuBLASLt takes rows that begin a
/// multiple of 8 numbers apart.
constexpr std::int64_t gelu_input_columns(std::int64_t columns) { return (columns + 7) / 8 * 8; }

}  // namespace stepcast
