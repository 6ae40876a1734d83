#pragma once
#include <array>
#include <cstdint>

#include "core/formats.h"
#include "core/graph/op_enums.h"

namespace stepcast {

/// Numbers (fp32) that an optimizer keeps for each element it trains; row-wise Adagrad keeps one
/// for each row.
constexpr int optimizer_states(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd ? 0 : kind == OptimizerKind::kAdam ? 2 : 1;
}

/// Rows and columns of the state, fp32, of `rows` x `columns` elements: states follow each other,
/// each as tall as the rows. 0 rows where there is none.
constexpr std::array<std::int64_t, 2> state_shape(OptimizerKind kind, std::int64_t rows,
                                                  std::int64_t columns) {
  return {optimizer_states(kind) * rows, kind == OptimizerKind::kRowwiseAdagrad ? 1 : columns};
}

/// Bytes of optimizer state of one row of `columns` elements.
constexpr double state_row_bytes(OptimizerKind kind, std::int64_t columns) {
  const auto [states, width] = state_shape(kind, 1, columns);
  return 4 * static_cast<double>(states * width);
}

/// The rule that dense parameters train with under an optimizer of that name: row-wise Adagrad is
/// for tables, dense parameters take the element-wise one.
constexpr OptimizerKind dense_rule(OptimizerKind kind) {
  return kind == OptimizerKind::kRowwiseAdagrad ? OptimizerKind::kAdagrad : kind;
}

/// Bytes of optimizer state of one dense parameter; a full copy of a weight that is kept in a
/// shorter format is not counted.
constexpr double state_parameter_bytes(OptimizerKind kind) {
  return state_row_bytes(dense_rule(kind), 1);
}

/// Bytes per cached row of the directory that finds it: the row (4 bytes), neighbours in the order
/// of use (8), batch that used it last (4), two to four hash entries (8 to 16).
constexpr double kCacheDirectoryBytes = 32;

/// Bytes of device memory per row that a cache has room for: the row, its optimizer state and the
/// directory that finds it.
inline double cached_row_bytes(Format rows, OptimizerKind kind, std::int64_t columns) {
  return format_bytes(rows, 1, columns).base() + state_row_bytes(kind, columns) +
         kCacheDirectoryBytes;
}

}  // namespace stepcast
