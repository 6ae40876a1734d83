#include "runtime/op_operands.h"

#include <algorithm>

#include "core/error.h"

namespace stepcast::runtime {
namespace {

void collect(const Program& program, const Op& op, TensorRole role, std::vector<TensorId>& ids) {
  for (const auto operands : {program.inputs(op), program.outputs(op)}) {
    for (const TensorId id : operands) {
      if (program.tensors[id].role == role && std::find(ids.begin(), ids.end(), id) == ids.end()) {
        ids.push_back(id);
      }
    }
  }
}

}  // namespace

std::vector<ParameterUpdate> parameter_updates(const Program& program, const Op& op) {
  std::vector<TensorId> gradients;
  std::vector<TensorId> weights;
  std::vector<TensorId> states;
  collect(program, op, TensorRole::kGradient, gradients);
  collect(program, op, TensorRole::kParameter, weights);
  collect(program, op, TensorRole::kEmbedding, weights);  // replicated tables
  collect(program, op, TensorRole::kOptimizerState, states);
  STEPCAST_CHECK(
      !weights.empty() && gradients.size() == weights.size() && states.size() % weights.size() == 0,
      "'{}' has {} gradients, {} weights and {} states", program.name(op), gradients.size(),
      weights.size(), states.size());
  const std::size_t each = states.size() / weights.size();
  std::vector<ParameterUpdate> updates;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ParameterUpdate u;
    u.gradient = gradients[i];
    u.weight = weights[i];
    u.states = static_cast<int>(each);
    if (const std::int32_t master = program.tensors[weights[i]].master; master >= 0) {
      u.master = static_cast<TensorId>(master);
    }
    if (each > 0) {
      u.first = states[i * each];
    }
    if (each > 1) {
      u.second = states[i * each + 1];
    }
    updates.push_back(u);
  }
  return updates;
}

std::vector<ColumnBlock> column_blocks(const Program& program, const Op& op) {
  if (const std::int32_t blocks = op.as<ColumnAttributes>().blocks; blocks >= 0) {
    return program.column_copies.at(static_cast<std::size_t>(blocks));
  }
  const auto inputs = program.inputs(op);
  const auto outputs = program.outputs(op);
  std::vector<ColumnBlock> blocks;
  std::size_t from = 0;
  std::size_t to = 0;
  std::int64_t from_column = 0;
  std::int64_t to_column = 0;
  while (from < inputs.size() && to < outputs.size()) {
    const std::int64_t from_width = program.tensors[inputs[from]].columns;
    const std::int64_t to_width = program.tensors[outputs[to]].columns;
    const std::int64_t width = std::min(from_width - from_column, to_width - to_column);
    blocks.push_back({.input = static_cast<std::int32_t>(from),
                      .output = static_cast<std::int32_t>(to),
                      .from_offset = from_column,
                      .from_pitch = from_width,
                      .to_offset = to_column,
                      .to_pitch = to_width,
                      .columns = width});
    from_column += width;
    to_column += width;
    if (from_column == from_width) {
      ++from;
      from_column = 0;
    }
    if (to_column == to_width) {
      ++to;
      to_column = 0;
    }
  }
  return blocks;
}

std::int64_t times_done(const Program& program, std::uint8_t flags, std::int64_t step) {
  return (flags & op_flags::kEveryInterval) != 0 ? step / program.interval : step;
}

float learning_rate(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return 0.1F;
    case OptimizerKind::kAdam:
    case OptimizerKind::kMuon:
      return 0.001F;
    case OptimizerKind::kRowwiseAdagrad:
    case OptimizerKind::kAdagrad:
      return 0.05F;
  }
  return 0.01F;
}

OptimizerSettings optimizer_settings(OptimizerKind kind, std::int64_t done) {
  OptimizerSettings settings;
  settings.kind = kind;
  settings.learning_rate = learning_rate(kind);
  settings.step = done + 1;
  return settings;
}

OptimizerSettings optimizer_settings(const Program& program, const Op& op, std::int64_t step) {
  return optimizer_settings(op.as<OptimizerAttributes>().kind, times_done(program, op.flags, step));
}

}  // namespace stepcast::runtime
