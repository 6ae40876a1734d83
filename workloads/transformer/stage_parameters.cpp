#include "workloads/transformer/stage_parameters.h"

#include <utility>

#include "core/error.h"

namespace stepcast::workloads {

/// Matrices of layers. Those that are stored side by side are one, as Megatron-LM has gate and up;
/// queries, keys and values are three (its --muon-split-qkv).
std::vector<MatrixBlock> StageParameters::matrices_of(const ParameterSpec& spec) const {
  const std::int64_t count = spec.matrices > 0 ? spec.matrices : spec.of_product ? 1 : 0;
  std::vector<MatrixBlock> blocks;
  const bool frozen = spec.sum == GradientSum::kFrozen || spec.sum == GradientSum::kFrozenNarrow;
  if (count == 0 || spec.unit < 0 || frozen || !job_.orthogonalises()) {
    return blocks;
  }
  const std::int64_t tensor = job_.parallel.tensor;
  for (const ParameterPiece& piece : spec.pieces) {
    if (!blocks.empty() && !spec.apart) {
      blocks.back().columns += piece.columns;
      continue;
    }
    blocks.push_back({spec.rows / count, piece.columns, count, piece.local_column,
                      piece.tensor_row_step > 0 && !spec.whole ? tensor : 1,
                      piece.tensor_column_step > 0 ? tensor / piece.tensor_column_ranks : 1});
  }
  return blocks;
}

void StageParameters::declare(std::vector<ParameterSpec> chunk) {
  ProgramBuilder& b = writer_.builder();
  DependencyInfo& order = writer_.order();
  const auto first = static_cast<std::uint32_t>(order.parameters.size());
  for (ParameterSpec& spec : chunk) {
    std::vector<MatrixBlock> matrices = matrices_of(spec);  // before its pieces move
    const TensorId weight = b.tensor({.name = spec.name,
                                      .role = TensorRole::kParameter,
                                      .format = spec.stored.value_or(job_.formats.compute),
                                      .rows = spec.rows,
                                      .columns = spec.columns,
                                      .pieces = std::move(spec.pieces)});
    const bool trained = spec.sum != GradientSum::kFrozen && spec.sum != GradientSum::kFrozenNarrow;
    const TensorId gradient = !trained ? kNoGradient
                                       : b.tensor({.name = spec.name + ".gradient",
                                                   .role = TensorRole::kGradient,
                                                   .format = job_.formats.gradient,
                                                   .rows = spec.rows,
                                                   .columns = spec.columns,
                                                   .pieces = {}});
    const bool fresh =
        parameters_.emplace(spec.name, ProgramBuilder::Parameter{weight, gradient}).second;
    STEPCAST_CHECK(fresh, "parameter '{}' was declared twice", spec.name);
    uses_.emplace(spec.name, ParameterUse{spec.unit, spec.of_product});
    order.parameters.push_back(
        {weight, gradient, spec.sum, spec.replicas, spec.unit, std::move(matrices)});
  }
  order.chunks.push_back({first, static_cast<std::uint32_t>(order.parameters.size()), {}, {}, {}});
}

}  // namespace stepcast::workloads
