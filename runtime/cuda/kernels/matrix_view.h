#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/formats.h"

using cudaStream_t = struct CUstream_st*;  // as in <driver_types.h>: these headers need no CUDA

namespace stepcast::runtime::cuda::kernels {

using Index = std::int64_t;

/// Bytes of one element in device memory: 4 for fp32 and tf32 (stored as fp32), 2 for bf16 and
/// fp16; 0 for a format that these kernels do not store.
constexpr std::size_t element_bytes(Format format) {
  return format == Format::kFp32 || format == Format::kTf32   ? 4
         : format == Format::kBf16 || format == Format::kFp16 ? 2
                                                              : 0;
}

/// A row-major matrix in device memory that somebody else owns; row i starts `i * stride` elements
/// after `data`, stride >= columns.
///
///     MatrixView qkv(buffer, Format::kBf16, tokens, 3 * hidden);
///     MatrixView key = qkv.block(hidden, hidden);   // columns [hidden, 2 * hidden) of every row
template <class Void>
struct BasicView {
  using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
  Void* data = nullptr;
  Format format = Format::kFp32;
  Index rows = 0;
  Index columns = 0;
  Index stride = 0;

  constexpr BasicView() = default;
  constexpr BasicView(Void* first, Format f, Index row_count, Index column_count)
      : BasicView(first, f, row_count, column_count, column_count) {}
  constexpr BasicView(Void* first, Format f, Index row_count, Index column_count, Index row_stride)
      : data(first), format(f), rows(row_count), columns(column_count), stride(row_stride) {}
  /// A writable view serves wherever a read-only one is asked for.
  template <class U,
            class = std::enable_if_t<std::is_same_v<const U, Void> && !std::is_same_v<U, Void>>>
  constexpr BasicView(const BasicView<U>& other)  // NOLINT(google-explicit-constructor)
      : BasicView(other.data, other.format, other.rows, other.columns, other.stride) {}

  /// Address of element (i, j).
  [[nodiscard]] Void* at(Index i, Index j) const {
    return static_cast<Byte*>(data) + (i * stride + j) * static_cast<Index>(element_bytes(format));
  }
  [[nodiscard]] constexpr Index elements() const { return rows * columns; }
  [[nodiscard]] constexpr bool contiguous() const { return stride == columns || rows <= 1; }
  [[nodiscard]] BasicView block(Index first_column, Index width) const {
    return {at(0, first_column), format, rows, width, stride};
  }
  [[nodiscard]] BasicView slice(Index first_row, Index row_count) const {
    return {at(first_row, 0), format, row_count, columns, stride};
  }
};
using MatrixView = BasicView<void>;
using ConstMatrixView = BasicView<const void>;

/// A vector of parameters or of their gradients (a bias, the scale of a norm).
struct Vector {
  void* data = nullptr;
  Format format = Format::kFp32;
};
struct ConstVector {
  const void* data = nullptr;
  Format format = Format::kFp32;
  constexpr ConstVector() = default;
  constexpr ConstVector(const void* first, Format f) : data(first), format(f) {}
  constexpr ConstVector(const Vector& v)  // NOLINT(google-explicit-constructor)
      : ConstVector(v.data, v.format) {}
};

/// Device memory for the inside of one call, 256-byte aligned; at least what the `*_workspace`
/// function beside a kernel says. Calls on one stream may share it; nothing in it outlives a call.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Conventions of all kernels in this folder.
// - A function enqueues work on `stream` and returns; it allocates nothing, reads nothing back and
// does not wait, so that
//   every call may be captured into a CUDA graph. A failed launch is a RunError that names the
//   kernel.
// - Sums are fp32 (losses double) whatever the formats; operands are converted when loaded and
// rounded to nearest when
//   stored. The main operands of one call have one format unless the comment says otherwise;
//   parameters and their gradients may have others.
// - Gradients of inputs are overwritten, gradients of parameters are added to (so micro-batches
// accumulate).
// - The order of every sum is fixed by the shapes: no atomics on floats, two runs give identical
// bits.
// - Layouts, masks and semantics are those of runtime/cpu/kernels, the reference in every test.
// Empty matrices are allowed.

}  // namespace stepcast::runtime::cuda::kernels
