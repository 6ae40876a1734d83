#include "core/job/recurrent_mixer.h"

#include <numeric>

namespace stepcast {

std::int64_t RecurrentMixer::width_of(const std::vector<Columns>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& part) { return sum + part.columns; });
}

std::vector<RecurrentMixer::Columns> RecurrentMixer::convolved(std::int64_t tensor) const {
  const std::int64_t k = keys() / tensor;
  const std::int64_t v = values() / tensor;
  return scans() ? std::vector<Columns>{{"query", k}, {"key", k}, {"value", v}}
                 : std::vector<Columns>{{"value", v}};
}

std::vector<RecurrentMixer::Columns> RecurrentMixer::inputs(std::int64_t tensor) const {
  std::vector<Columns> parts = convolved(tensor);
  const std::int64_t v = values() / tensor;
  const std::int64_t h = heads / tensor;
  switch (rule) {
    case RecurrentRule::kMamba2:
      parts.insert(parts.end(), {{"gate", v}, {"step", h}});
      break;
    case RecurrentRule::kGatedDelta:
      parts.insert(parts.end(), {{"gate", v}, {"strength", h}, {"decay", h}});
      break;
    case RecurrentRule::kKimiDelta:
      parts.push_back({"strength", h});
      break;
    case RecurrentRule::kConvolution:
      parts.insert(parts.end(), {{"gate_in", v}, {"gate_out", v}});
      break;
  }
  return parts;
}

std::vector<RecurrentMixer::Columns> RecurrentMixer::narrow_gates(std::int64_t tensor) const {
  if (rule != RecurrentRule::kKimiDelta) {
    return {};
  }
  return {{"decay", keys() / tensor}, {"gate", values() / tensor}};
}

std::vector<RecurrentMixer::Columns> RecurrentMixer::vectors(std::int64_t tensor) const {
  const std::int64_t h = heads / tensor;
  switch (rule) {
    case RecurrentRule::kMamba2:
      return {{"decay", h}, {"step_bias", h}, {"skip", h}};
    case RecurrentRule::kGatedDelta:
      return {{"decay", h}, {"decay_bias", h}};
    case RecurrentRule::kKimiDelta:
      return {{"decay", h}, {"decay_bias", keys() / tensor}};
    case RecurrentRule::kConvolution:
      break;
  }
  return {};
}

std::int64_t RecurrentMixer::norm_columns(std::int64_t tensor) const {
  return !scans() ? 0 : rule == RecurrentRule::kMamba2 ? values() / tensor : value_dim;
}

std::int64_t RecurrentMixer::parameters(std::int64_t hidden) const {
  std::int64_t n = hidden * width_of(inputs(1)) + values() * hidden;
  n += width_of(convolved(1)) * (kernel + (convolution_bias() ? 1 : 0));
  for (const Columns& gate : narrow_gates(1)) {
    n += gate_rank * (hidden + gate.columns);
  }
  return n + width_of(vectors(1)) + norm_columns(1);
}

}  // namespace stepcast
