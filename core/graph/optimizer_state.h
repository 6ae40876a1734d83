#pragma once
#include "core/formats.h"
#include "core/graph/op.h"

namespace stepcast {

/// Numbers (fp32) that an optimizer keeps for each element it trains; row-wise Adagrad keeps one
/// for each row.
constexpr int optimizer_states(OptimizerKind kind) {
  return kind == OptimizerKind::kSgd ? 0 : kind == OptimizerKind::kAdam ? 2 : 1;
}

/// Bytes of optimizer state of one row of `columns` elements.
constexpr double state_row_bytes(OptimizerKind kind, double columns) {
  const double each = kind == OptimizerKind::kRowwiseAdagrad ? 1 : columns;
  return 4 * optimizer_states(kind) * each;
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
  return format_bytes(rows, 1, columns).base() +
         state_row_bytes(kind, static_cast<double>(columns)) + kCacheDirectoryBytes;
}

}  // namespace stepcast
