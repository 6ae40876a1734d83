#pragma once
#include <cstdint>
#include <type_traits>

namespace stepcast::runtime::kernels {

using Index = std::int64_t;

/// A row-major fp32 matrix that somebody else owns; row i starts at data + i * stride, stride >=
/// columns.
///
///     MatrixView qkv(buffer, tokens, 3 * hidden);
///     MatrixView key = qkv.block(hidden, hidden);   // columns [hidden, 2 * hidden) of every row
template <class T>
struct BasicView {
  T* data = nullptr;
  Index rows = 0;
  Index columns = 0;
  Index stride = 0;

  constexpr BasicView() = default;
  constexpr BasicView(T* first, Index row_count, Index column_count)
      : BasicView(first, row_count, column_count, column_count) {}
  constexpr BasicView(T* first, Index row_count, Index column_count, Index row_stride)
      : data(first), rows(row_count), columns(column_count), stride(row_stride) {}
  /// A writable view serves wherever a read-only one is asked for.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) constexpr BasicView(
      const BasicView<U>& other)  // NOLINT(google-explicit-constructor)
      : BasicView(other.data, other.rows, other.columns, other.stride) {}

  [[nodiscard]] constexpr T* row(Index i) const { return data + i * stride; }
  [[nodiscard]] constexpr bool contiguous() const { return stride == columns || rows <= 1; }
  [[nodiscard]] constexpr BasicView block(Index first_column, Index width) const {
    return {data + first_column, rows, width, stride};
  }
  [[nodiscard]] constexpr BasicView slice(Index first_row, Index row_count) const {
    return {data + first_row * stride, row_count, columns, stride};
  }
};

using MatrixView = BasicView<float>;
using ConstMatrixView = BasicView<const float>;

// Conventions of all kernels in this folder: one thread, fp32; nothing is allocated beyond what a
// workspace object holds; gradients of inputs are overwritten, gradients of parameters are added to
// (so micro-batches accumulate); the order of every sum is fixed by the shapes, so two runs give
// identical bits.

}  // namespace stepcast::runtime::kernels
