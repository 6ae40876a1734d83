#include "workloads/transformer/stage_parameters.h"

#include <utility>

#include "core/error.h"

namespace stepcast::workloads {

void StageParameters::declare(std::vector<ParameterSpec> chunk) {
  ProgramBuilder& b = writer_.builder();
  DependencyInfo& order = writer_.order();
  const auto first = static_cast<std::uint32_t>(order.parameters.size());
  for (ParameterSpec& spec : chunk) {
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
    order.parameters.push_back({weight, gradient, spec.sum, spec.replicas, spec.unit});
  }
  order.chunks.push_back({first, static_cast<std::uint32_t>(order.parameters.size()), {}, {}, {}});
}

}  // namespace stepcast::workloads
