#pragma once
#include <cmath>
#include <cstdint>

#include "core/graph/op_enums.h"

namespace stepcast::runtime {

/// Settings that an optimizer needs besides its arrays. `step` counts from 1 (Adam's bias
/// correction).
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kSgd;
  float learning_rate = 0.01F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  std::int64_t step = 1;
};

/// Adam's update as one expression: weight -= rate * m / (sqrt(v) * second_scale + epsilon), with
/// rate = learning_rate / (1 - beta1^step), second_scale = 1 / sqrt(1 - beta2^step).
struct AdamFactors {
  float beta1;
  float beta2;
  float rate;
  float second_scale;
  float epsilon;
};

inline AdamFactors adam_factors(const OptimizerSettings& settings) {
  const auto step = static_cast<double>(settings.step);
  const double first = 1.0 - std::pow(static_cast<double>(settings.beta1), step);
  const double second = 1.0 - std::pow(static_cast<double>(settings.beta2), step);
  return {settings.beta1, settings.beta2,
          static_cast<float>(static_cast<double>(settings.learning_rate) / first),
          static_cast<float>(1.0 / std::sqrt(second)), settings.epsilon};
}

}  // namespace stepcast::runtime
