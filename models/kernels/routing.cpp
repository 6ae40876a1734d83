#include "models/kernels/routing.h"

#include <algorithm>
#include <cmath>

namespace stepcast::models {
namespace {

struct Extents {
  explicit Extents(const Op& op)
      : tokens(extent(op, 0)), experts(extent(op, 1)), choices(extent(op, 2)) {}
  double tokens, experts, choices;
};

}  // namespace

std::vector<Constant> RoutingDraw::constants(const Device& device) const {
  return {{"start", device.launch.base(), 1e-6, 1e-9, 1e-3},
          {"count", 0, 1e-7, 1e-10, 1e-4},
          {"element", 0, 2e-9, 1e-12, 1e-6},
          {"choice", 0, 5e-8, 1e-10, 1e-5}};
}

Prediction RoutingDraw::predict(const OpFacts& facts, const Device& device,
                                std::span<const double> c) const {
  enum { kStart, kCount, kElement, kChoice };
  const Extents e(*facts.op);
  const Seconds compute(e.experts * c[kCount] + e.tokens * e.experts * c[kElement] +
                        e.tokens * e.choices * c[kChoice]);
  const Seconds memory(facts.bytes / std::max(device.bandwidth.base(), 1.0));
  Prediction p = bounded_by(compute, memory, Seconds(c[kStart]));
  p.time = p.overhead + compute + memory;
  return p;
}

std::vector<double> RoutingDraw::coordinates(const OpFacts& facts) const {
  const Extents e(*facts.op);
  return {std::log(e.tokens), std::log(e.experts), std::log(e.choices)};
}
std::vector<std::string_view> RoutingDraw::coordinate_names() const {
  return {"log_tokens", "log_experts", "log_choices"};
}

}  // namespace stepcast::models
