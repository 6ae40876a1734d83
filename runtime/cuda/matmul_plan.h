#pragma once
#include <cstdint>

#include "core/formats.h"
#include "core/graph/epilogue.h"
#include "core/graph/program.h"

namespace stepcast::runtime::cuda {

/// C[m, n] = alpha * op(A)[m, k] * op(B)[k, n] + beta * C, row-major, `batch` times. With
/// `transpose_a` A is stored [k, m], with `transpose_b` B is stored [n, k]. Strides: elements
/// between rows; steps: elements between the matrices of the batch (0 shares one).
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  float alpha = 1, beta = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  std::int64_t step_a = 0, step_b = 0, step_c = 0;
  Format a = Format::kFp32, b = Format::kFp32, c = Format::kFp32;  ///< as stored
  Format compute = Format::kFp32;  ///< of both operands inside; tf32 rounds fp32 operands
  /// For fp8 products: operands that are gradients, which take five bits of exponent instead of
  /// four. At most one of them.
  bool gradient_a = false, gradient_b = false;
  Epilogue epilogue = Epilogue::kNone;
  std::int64_t stride_aux = 0;  ///< of the mask or the GELU's input that the epilogue goes with
  /// m, with `transpose_a` k, is another one in each step, as of experts.
  bool rows_vary = false;
};

/// The product of a gemm op. Errors: InternalError when an operand is smaller than the shape says.
Product product_of(const Program& program, const Op& op);

/// Elements of the summed dimension of an fp8 product come in packs of so many.
constexpr std::int64_t kFp8Pack = 16;

/// A product as cuBLASLt is asked for it: column-major, so C^T = op(B)^T op(A)^T with our B first.
/// The library multiplies operands of one format; one that is stored in another is converted into
/// the workspace first.
///
/// fp8: both operands are quantised into the workspace, each with one scale, and stand there with
/// the summed dimension innermost and padded with zeros to a multiple of 16: devices before
/// compute capability 10.0 multiply op(A) = A^T, op(B) = B only.
struct MatmulPlan {
  struct Matrix {
    Format format = Format::kFp32;
    std::int64_t rows = 0, columns = 0, leading = 0, step = 0;  ///< column-major
    bool transpose = false;
    bool converted = false;         ///< stands in the workspace
    bool gradient = false;          ///< fp8: e5m2 instead of e4m3
    std::uint32_t alignment = 256;  ///< bytes the address is a multiple of
    bool operator==(const Matrix&) const = default;
  };
  Matrix first, second, out;  ///< our B, our A, our C
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  float alpha = 1, beta = 0;
  bool tf32 = false;
  Epilogue epilogue = Epilogue::kNone;
  /// Numbers (of a mask: bits) from column to column of what the epilogue goes with; 0: nothing.
  std::int64_t aux_leading = 0;
  std::uint32_t row_alignment = 256, aux_alignment = 256;  ///< as Matrix::alignment
  [[nodiscard]] bool fp8() const { return first.format == Format::kFp8; }
  bool operator==(const MatmulPlan&) const = default;
  /// Whether the epilogue makes column sums, which stand in the workspace until they are added.
  [[nodiscard]] bool sums() const { return sums_columns(epilogue); }
  /// Bytes of workspace for converted operands and column sums, each 256-byte aligned.
  [[nodiscard]] std::size_t converted_bytes() const;
  [[nodiscard]] std::size_t hash() const;
};

/// Addresses that go with an epilogue: its bias, its mask or GELU's input.
struct EpilogueAddresses {
  std::uintptr_t bias = 0, aux = 0;
};

/// The addresses of A, B, C and the epilogue's operands decide the alignment that may be counted
/// on. Errors: InputError for a format that is not multiplied (only fp32, tf32, bf16, fp16 and fp8
/// are), for fp8 products whose rows are not multiples of 16 bytes, and for batches of them.
MatmulPlan matmul_plan(const Product& product, std::uintptr_t a, std::uintptr_t b, std::uintptr_t c,
                       const EpilogueAddresses& epilogue = EpilogueAddresses());

/// Whose algorithm a product of varying rows takes (Product::rows_vary): the plan with the next
/// multiple of 64 of them, and no address counted on beyond 16 bytes. Rows of ours are columns of
/// the library's, so that no leading dimension follows from how many there are.
MatmulPlan with_rounded_rows(const Product& product, MatmulPlan plan);

/// Bytes of one element as this backend stores it: fp32 and tf32 4, bf16 and fp16 2, int32 4,
/// int64 8, fp8 1 (memory for quantised copies only). Errors: InputError for formats it does not
/// store.
std::size_t stored_bytes(Format format);

}  // namespace stepcast::runtime::cuda
