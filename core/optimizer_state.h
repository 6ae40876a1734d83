#pragma once
#include "core/op.h"

namespace stepcast {

/// Numbers (fp32) that an optimizer keeps beside each element it trains; row-wise Adagrad keeps one
/// beside each row.
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

}  // namespace stepcast
