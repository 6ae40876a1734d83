#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/graph/program.h"
#include "runtime/optimizer_settings.h"

namespace stepcast::runtime {

/// One parameter an optimizer op updates, and what it reads for it.
struct ParameterUpdate {
  TensorId gradient = 0;
  TensorId weight = 0;
  TensorId first = 0;   ///< if states > 0
  TensorId second = 0;  ///< if states > 1
  int states = 0;
  std::optional<TensorId> master;  ///< fp32 original of narrow weights, where the program has one
};

/// The operands of an optimizer op by role: gradient i belongs to weight i, states come weight
/// by weight (m0, v0, m1, v1).
std::vector<ParameterUpdate> parameter_updates(const Program& program, const Op& op);

/// The blocks a copy_columns op moves: those of its attributes, else what makes the inputs side by
/// side equal to the outputs side by side.
std::vector<ColumnBlock> column_blocks(const Program& program, const Op& op);

/// How often an op with these flags has been executed before step `step` of the run, counted from
/// 0.
std::int64_t times_done(const Program& program, std::uint8_t flags, std::int64_t step);

/// Step size of each optimizer, the same for every op that updates parameters (dense and
/// embedding), and its settings after `done` updates.
float learning_rate(OptimizerKind kind);
OptimizerSettings optimizer_settings(OptimizerKind kind, std::int64_t done);
/// Those of an optimizer op.
OptimizerSettings optimizer_settings(const Program& program, const Op& op, std::int64_t step);

}  // namespace stepcast::runtime
